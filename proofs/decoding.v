(* Plain decoding, and what it means that a round of speculative decoding leaves its law alone. *)
From mathcomp Require Import all_ssreflect all_algebra.
From draftproof Require Import chance law.
Import GRing.Theory Num.Theory Order.Theory.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Local Open Scope ring_scope.

Section Decoding.
Variables (R : realFieldType) (V : vocabulary).

(* What a rule returns: the accepted drafts and the one token drawn after them. *)
Definition verdict := (seq V * V)%type.
Definition emitted (v : verdict) : seq V := rcons v.1 v.2.
Definition put (x : V) (v : verdict) : verdict := (x :: v.1, v.2).

(* The target gives a law after every text. Nothing is asked of how it depends on the text. *)
Variable p : seq V -> V -> R.
Hypothesis p_law : forall c, is_law (p c).

(* The text c with n more tokens, each drawn from the target's law after all before it. *)
Fixpoint plain (n : nat) (c : seq V) : prog R V (seq V) :=
  if n is n'.+1 then Draw (p c) (fun x => plain n' (rcons c x)) else Ret c.

(* The text c with n more tokens, of which the first are given; the target goes on where they end. *)
Fixpoint go_on (n : nat) (c ts : seq V) : prog R V (seq V) :=
  match n, ts with
  | 0, _ => Ret c
  | n'.+1, [::] => plain n c
  | n'.+1, x :: ts' => go_on n' (rcons c x) ts'
  end.

(* A round after c is exact when the text has the target's law, however many tokens of it are looked at: what the round emits
   comes first, and the target goes on. *)
Definition exact (c : seq V) (round : prog R V verdict) : Prop :=
  forall n f, E round (fun v => E (go_on n c (emitted v)) f) = E (plain n c) f.

(* What follows when x comes next and n tokens after it are looked at. *)
Definition after (n : nat) (c : seq V) (f : seq V -> R) (x : V) : R := E (plain n (rcons c x)) f.

Lemma E_plain n c f : E (plain n.+1 c) f = \sum_x p c x * after n c f x.
Proof. exact: E_draw. Qed.

Lemma proper_plain n c : proper (plain n c).
Proof. by elim: n c => [|n IH] c //=; case: (p_law c) => _ ->; rewrite oner_eq0. Qed.

Lemma proper_go_on n c ts : proper (go_on n c ts).
Proof. by elim: n c ts => [|n IH] c [|x ts] //; [apply: proper_plain | apply: IH]. Qed.

Lemma go_on_nil n c : go_on n c [::] = plain n c.
Proof. by case: n. Qed.

(* A draw that nothing was drafted after. *)
Definition last_draw (w : V -> R) : prog R V verdict := Draw w (fun y => Ret ([::], y)).

Lemma E_last_draw n c w f : E (last_draw w) (fun v => E (go_on n.+1 c (emitted v)) f) =
  mass (fun y => w y * after n c f y) / mass w.
Proof. by congr (_ / _); apply: eq_mass => y; rewrite /= go_on_nil. Qed.

Lemma exact_last_draw c : exact c (last_draw (p c)).
Proof.
case=> [|n] f; last by rewrite E_last_draw E_plain massE; case: (p_law c) => _ ->; rewrite divr1.
by apply: E_const; apply: proper_draw.
Qed.

(* Tokens of a round, and how many of its drafts were accepted. *)
Definition expected_tokens (round : prog R V verdict) : R := E round (fun v => (size (emitted v))%:R).

(* A list has one beginning of each length up to its own. *)
Lemma one_prefix i (s : seq V) : \sum_(t : i.-tuple V) (prefix t s)%:R = (i <= size s)%:R :> R.
Proof.
case: leqP => [le_is|lt_si].
  have size_t : size (take i s) == i by rewrite size_takel.
  rewrite (bigD1 (Tuple size_t)) //= prefixE size_takel // eqxx big1 ?addr0 // => t neq_t.
  rewrite prefixE size_tuple; case: eqP => // eq_t; case/eqP: neq_t; exact: val_inj.
rewrite big1 // => t _; rewrite prefixE size_tuple take_oversize ?(ltnW lt_si) //.
by case: eqP => // eq_s; move: lt_si; rewrite eq_s size_tuple ltnn.
Qed.

(* The chance that at least i drafts are accepted, path by path. *)
Lemma accepted_as_paths i (round : prog R V verdict) :
  Pr round (fun v => (i <= size v.1)%N) = \sum_(t : i.-tuple V) Pr round (fun v => prefix t v.1).
Proof. by rewrite -E_sum; apply: E_ext => v; rewrite one_prefix. Qed.

(* So a list of at most k tokens is as long as the number of its beginnings that are not empty. *)
Lemma size_as_prefixes k (s : seq V) : (size s <= k)%N ->
  (size s)%:R = \sum_(1 <= i < k.+1) \sum_(t : i.-tuple V) (prefix t s)%:R :> R.
Proof.
move=> le_sk.
rewrite (eq_bigr (fun i => (i <= size s)%:R)) => [|i _]; last exact: one_prefix.
rewrite (big_cat_nat _ _ _ (_ : 1 <= (size s).+1)%N) //= ?ltnS //.
rewrite [X in _ + X]big_nat_cond [X in _ + X]big1 ?addr0 => [|i /andP[/andP[lt _] _]]; last by rewrite leqNgt lt.
rewrite big_nat_cond (eq_bigr (fun=> 1)) => [|i /andP[/andP[_ lt] _]]; last by rewrite -ltnS lt.
by rewrite -big_nat_cond sumr_const_nat subn1.
Qed.

(* So a round of at most k accepted drafts has, on average, one token and one more for each accepted path. *)
Lemma expected_tokens_as_paths k (round : prog R V verdict) :
  proper round -> always (fun v => size v.1 <= k)%N round ->
  expected_tokens round = 1 + \sum_(1 <= i < k.+1) \sum_(t : i.-tuple V) Pr round (fun v => prefix t v.1).
Proof.
move=> proper_round short; rewrite /expected_tokens.
pose g (v : verdict) : R := \sum_(1 <= i < k.+1) \sum_(t : i.-tuple V) (prefix t v.1)%:R.
rewrite (E_ext_always short (g := fun v => 1 + g v)) => [|v le_vk].
  rewrite E_add E_const //; congr (_ + _); rewrite /g.
  elim: k {short g} => [|k IH].
    by rewrite big_geq // -[RHS](E_const 0 proper_round); apply: E_ext => v; rewrite big_geq.
  by rewrite big_nat_recr //= -IH -E_sum -E_add; apply: E_ext => v; rewrite big_nat_recr.
by rewrite /g -size_as_prefixes // size_rcons mulrS.
Qed.

End Decoding.
