(* `token`: accept each draft with min(1, target/draft), replace the first rejected one from the residual.
   The code is core/rules/token.py; the names of its parts are kept. *)
From mathcomp Require Import all_ssreflect all_algebra.
From draftproof Require Import chance law decoding.
Import GRing.Theory Num.Theory Order.Theory.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Local Open Scope ring_scope.

Section Token.
Variables (R : realFieldType) (V : vocabulary).

(* Whatever drafts a chain: it stops, or draws from a law and goes on in a way that may depend on the token drawn. So its laws,
   and when it stops, depend on the text and on the drafts before in any way; that it cannot look at a draft and then drop it is
   in the type. A guess is a draw from a one-hot law. *)
Inductive drafter := Stop | Next of (V -> R) & (V -> drafter).

Fixpoint lawful (d : drafter) : Prop :=
  if d is Next q below then is_law q /\ forall x, lawful (below x) else True.

Fixpoint at_most (k : nat) (d : drafter) : Prop :=
  if d is Next _ below then if k is k'.+1 then forall x, at_most k' (below x) else False else True.

(* k drafts of a model. *)
Fixpoint model_drafter (q : seq V -> V -> R) (k : nat) (c : seq V) : drafter :=
  if k is k'.+1 then Next (q c) (fun x => model_drafter q k' (rcons c x)) else Stop.

(* The drafted tokens, each with the law it was drawn from. *)
Definition draft := seq ((V -> R) * V).

Fixpoint grow (d : drafter) : prog R V draft :=
  match d with
  | Stop => Ret [::]
  | Next q below => Draw q (fun x => bind (grow (below x)) (fun rest => Ret ((q, x) :: rest)))
  end.

(* What was drafted was drawn from laws. *)
Fixpoint recorded (drafted : draft) : Prop :=
  if drafted is (q, _) :: rest then is_law q /\ recorded rest else True.

Lemma recorded_grow d : lawful d -> always recorded (grow d).
Proof.
elim: d => [|q below IH] //= [q_law below_law] x.
by apply: (always_bind (IH x (below_law x))) => rest.
Qed.

Lemma proper_grow d : lawful d -> proper (grow d).
Proof.
elim: d => [|q below IH] //= [q_law below_law]; split; first by case: q_law => _ ->; rewrite oner_eq0.
by move=> x; apply: proper_bind; auto.
Qed.

Lemma short_grow k d : at_most k d -> always (fun drafted => size drafted <= k)%N (grow d).
Proof.
elim: d k => [|q below IH] [|k] //= short x.
by apply: (always_bind (IH x k (short x))) => rest.
Qed.

(* Drafting, and then verifying, is drawing one token, and then drafting the rest and verifying. *)
Lemma E_grow B q below (verify : draft -> prog R V B) f : is_law q ->
  E (bind (grow (Next q below)) verify) f =
  \sum_x q x * E (bind (grow (below x)) (fun rest => verify ((q, x) :: rest))) f.
Proof.
move=> q_law; rewrite E_bind [grow _]/= E_draw //; apply: eq_bigr => x _; congr (_ * _).
by rewrite [LHS]E_bind E_bind.
Qed.

Variable p : seq V -> V -> R.
Hypothesis p_law : forall c, is_law (p c).

Fixpoint token_rule (c : seq V) (drafted : draft) : prog R V (verdict V) :=
  match drafted with
  | [::] => last_draw (p c)
  | (q, x) :: rest => Flip (p c x / q x) (fun accepted =>
      if accepted then bind (token_rule (rcons c x) rest) (fun v => Ret (put x v)) else last_draw (residual (p c) q))
  end.

Definition token_round (d : drafter) (c : seq V) := bind (grow d) (token_rule c).

Lemma proper_token_rule c drafted : proper (token_rule c drafted).
Proof.
elim: drafted c => [|[q x] rest IH] c /=; first by split=> //; case: (p_law c) => _ ->; rewrite oner_eq0.
split=> _; first by apply: proper_bind; auto.
by split=> //; rewrite gt_eqF // mass_residual.
Qed.

Lemma proper_token_round d c : lawful d -> proper (token_round d c).
Proof. by move=> d_law; apply: proper_bind (proper_token_rule c); apply: proper_grow. Qed.

Lemma E_token_round q below c f : lawful (Next q below) ->
  E (token_round (Next q below) c) f =
  \sum_x q x * (clip (p c x / q x) * E (token_round (below x) (rcons c x)) (fun v => f (put x v)) +
                (1 - clip (p c x / q x)) * E (last_draw (residual (p c) q)) f).
Proof.
move=> [q_law below_law]; rewrite /token_round E_grow //; apply: eq_bigr => x _; congr (_ * _).
rewrite [LHS]E_bind /= E_add E_scale E_const; last exact: proper_grow (below_law x).
by congr (_ * _ + _); rewrite E_bind; apply: E_ext => rest; rewrite E_bind.
Qed.

(* A round of `token` leaves the target's law, whatever drafts. *)
Theorem token_exact d c : lawful d -> exact p c (token_round d c).
Proof.
elim: d c => [|q below IH] c d_law; first exact: exact_last_draw.
case=> [|n] f; first by apply: E_const; apply: proper_token_round.
rewrite E_token_round // E_plain // -(one_position _ (p_law c) d_law.1) E_last_draw.
rewrite -one_trial ?d_law.1 //; [|exact: d_law.1|by case: (p_law c)].
apply: eq_bigr => x _; congr (_ * (_ * _ + _)).
exact: (IH x (rcons c x) (d_law.2 x) n f).
Qed.

(* The weight of a drafted path: the product of what the two laws have in common on the way. *)
Fixpoint overlap_along (d : drafter) (c t : seq V) {struct t} : R :=
  match t, d with
  | [::], _ => 1
  | x :: t', Next q below => common (p c) q x * overlap_along (below x) (rcons c x) t'
  | _ :: _, Stop => 0
  end.

(* The chance that a path is drafted and accepted as a whole. *)
Theorem token_path d c t : lawful d -> Pr (token_round d c) (fun v => prefix t v.1) = overlap_along d c t.
Proof.
rewrite /Pr; elim: t d c => [|x t IH] [|q below] c d_law.
- by rewrite -[RHS](E_const 1 (proper_token_round c d_law)); apply: E_ext => v; rewrite prefix0s.
- by rewrite -[RHS](E_const 1 (proper_token_round c d_law)); apply: E_ext => v; rewrite prefix0s.
- by rewrite [RHS]/= /= massE big1 ?mul0r // => y _; rewrite mulr0.
rewrite E_token_round // (_ : E (last_draw _) _ = 0); last by rewrite /= massE big1 ?mul0r // => y _; rewrite mulr0.
rewrite (bigD1 x) //= mulr0 addr0 [X in _ + X]big1 ?addr0 => [|y neq_yx].
  rewrite mulrA accept_common; [|by case: (p_law c)|by case: d_law => -[]].
  by congr (_ * _); rewrite -IH; [apply: E_ext => v; rewrite /= eqxx | case: d_law => _; apply].
rewrite mulr0 addr0 (_ : E _ _ = 0) ?mulr0 //.
rewrite -[RHS](E_const 0 (proper_token_round (rcons c y) (d_law.2 y))); apply: E_ext => v /=.
by rewrite eq_sym (negbTE neq_yx).
Qed.

Lemma short_token_round k d c : at_most k d -> always (fun v => size v.1 <= k)%N (token_round d c).
Proof.
move=> short; apply: (always_bind (short_grow short)) => drafted; elim: drafted k c {short} => [|[q x] rest IH] [|k] c //= le_k.
by case=> //; apply: (always_bind (IH k (rcons c x) le_k)) => v.
Qed.

(* Expected tokens of a round: one, and the weights of all paths. *)
Theorem token_expected k d c : lawful d -> at_most k d ->
  expected_tokens (token_round d c) = 1 + \sum_(1 <= i < k.+1) \sum_(t : i.-tuple V) overlap_along d c t.
Proof.
move=> d_law short; rewrite (expected_tokens_as_paths (k := k)); [|exact: proper_token_round|exact: short_token_round].
by congr (_ + _); apply: eq_bigr => i _; apply: eq_bigr => t _; apply: token_path.
Qed.

(* Of a model that drafts k tokens, the weight is the product of min(target, draft) along the path. *)
Lemma overlap_along_model q k c (t : seq V) x0 : (size t <= k)%N ->
  overlap_along (model_drafter q k c) c t =
  \prod_(j < size t) common (p (c ++ take j t)) (q (c ++ take j t)) (nth x0 t j).
Proof.
elim: t k c => [|x t IH] [|k] c //= le_tk; rewrite ?big_ord0 //.
rewrite big_ord_recl IH //= cats0; congr (_ * _).
by apply: eq_bigr => j _; rewrite -cats1 -catA.
Qed.

Lemma lawful_model q k c : (forall c', is_law (q c')) -> lawful (model_drafter q k c).
Proof. by move=> q_law; elim: k c => //= k IH c; split. Qed.

(* Where the two laws overlap by alpha after every text: 1 + alpha + ... + alpha^k tokens, `expected_tokens` of the code. *)
Theorem token_expected_alpha q k c alpha : (forall c', is_law (q c')) -> (forall c', mass (common (p c') (q c')) = alpha) ->
  expected_tokens (token_round (model_drafter q k c) c) = \sum_(i < k.+1) alpha ^+ i.
Proof.
move=> q_law overlap; rewrite /expected_tokens; elim: k c => [|k IH] c.
  rewrite big_ord_recl big_ord0 addr0 expr0 -[RHS](E_const 1 (proper_token_round c (lawful_model 0 c q_law))).
  by apply: (E_ext_always (P := fun v => size v.1 = 0%N)) => // v size_v; rewrite size_rcons size_v.
rewrite E_token_round; last exact: (lawful_model k.+1 c q_law).
rewrite big_ord_recl expr0; under [X in _ = _ + X]eq_bigr do rewrite exprS; rewrite -mulr_sumr.
set rest := \sum_(i < k.+1) alpha ^+ i in IH *; pose deeper x := E (token_round (model_drafter q k (rcons c x)) (rcons c x)) (fun v => (size (emitted v))%:R) : R.
rewrite (eq_bigr (fun x => q c x * (clip (p c x / q c x) * (1 + deeper x) + (1 - clip (p c x / q c x)) * 1))) => [|x _].
  rewrite one_trial //; last by case: (p_law c).
  rewrite mulr1 addrC -addrA addrCA; under [X in _ + (_ + X)]eq_bigr do rewrite mulrDr mulr1 /deeper IH.
  by rewrite big_split /= -mulr_suml -!massE overlap addrCA addKr.
congr (_ * (_ * _ + _ * _)); last first.
  rewrite /= (eq_mass (w' := residual (p c) (q c))) => [|y]; last by rewrite mulr1.
  by rewrite divff // gt_eqF // mass_residual.
rewrite /deeper -[X in _ = X + _](E_const 1 (proper_token_round (rcons c x) (lawful_model k (rcons c x) q_law))) -E_add.
by apply: E_ext => v; rewrite /= mulrS.
Qed.

End Token.
