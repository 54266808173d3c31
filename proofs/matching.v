(* `match`: draw from the target, and go on below the candidate that equals the draw. The code is core/rules/match.py. *)
From mathcomp Require Import all_ssreflect all_algebra.
From draftproof Require Import chance law decoding tree.
Import GRing.Theory Num.Theory Order.Theory.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Local Open Scope ring_scope.

Section Match.
Variables (R : realFieldType) (V : vocabulary).
Variable p : seq V -> V -> R.
Hypothesis p_law : forall c, is_law (p c).

(* y was drawn after c, where t was drafted. *)
Fixpoint match_after (c : seq V) (t : tree R V) (y : V) : prog R V (verdict V) :=
  match t with
  | Bare => Ret ([::], y)
  | Child _ x hung others =>
      if x == y then Draw (p (rcons c x)) (fun z => bind (match_after (rcons c x) hung z) (fun v => Ret (put x v)))
      else match_after c others y
  end.

Definition match_rule (c : seq V) (t : tree R V) := Draw (p c) (match_after c t).

Lemma proper_match_after c t y : proper (match_after c t y).
Proof.
elim: t c y => [|q x hung IHh others IHo] c y //=; case: ifP => // _; split=> [|z].
  by case: (p_law (rcons c x)) => _ ->; rewrite oner_eq0.
by apply: proper_bind; auto.
Qed.

Lemma proper_match_rule c t : proper (match_rule c t).
Proof. by apply: proper_draw => // x; apply: proper_match_after. Qed.

Lemma match_after_exact t c y n f :
  E (match_after c t y) (fun v => E (go_on p n.+1 c (emitted v)) f) = after p n c f y.
Proof.
elim: t c y n => [|q x hung IHh others IHo] c y n; first by rewrite /= go_on_nil.
rewrite [match_after _ _ _]/=; case: eqVneq => [<-|_]; last exact: IHo.
rewrite E_draw // /after; case: n => [|n]; last first.
  by rewrite E_plain //; apply: eq_bigr => z _; rewrite E_bind -IHh.
rewrite -[RHS](E_const _ (proper_match_rule (rcons c x) hung)) E_draw //.
by apply: eq_bigr => z _; rewrite E_bind.
Qed.

(* A round of `match` leaves the target's law for every draft there is, however it came about: nothing is asked of it but that
   it does not know the draws. *)
Theorem match_exact t c : exact p c (match_rule c t).
Proof.
apply: exact_from (proper_match_rule c t) _ => // n f.
by rewrite E_draw //; apply: eq_bigr => x _; rewrite match_after_exact.
Qed.

Corollary match_any_draft (drafting : prog R V (tree R V)) c : proper drafting -> exact p c (bind drafting (match_rule c)).
Proof.
move=> pd n f; rewrite E_bind -[RHS](E_const _ pd); apply: E_ext => t; exact: match_exact.
Qed.

End Match.
