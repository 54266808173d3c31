(* `rrs`: recursive rejection sampling down a tree, siblings tried in the order they were drawn. The code is core/rules/rrs.py. *)
From mathcomp Require Import all_ssreflect all_algebra.
From draftproof Require Import chance law decoding tree.
Import GRing.Theory Num.Theory Order.Theory.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Local Open Scope ring_scope.

Section RecursiveRejection.
Variables (R : realFieldType) (V : vocabulary).
Variable p : seq V -> V -> R.
Hypothesis p_law : forall c, is_law (p c).

(* `law` is what the rejected siblings have left of the target's law after c. *)
Fixpoint rrs_from (law : V -> R) (c : seq V) (t : tree R V) : prog R V (verdict V) :=
  match t with
  | Bare => last_draw law
  | Child q x hung others => Flip (law x / q x) (fun accepted =>
      if accepted then bind (rrs_from (p (rcons c x)) (rcons c x) hung) (fun v => Ret (put x v))
      else rrs_from (remainder law q) c others)
  end.

Definition rrs_rule (c : seq V) (t : tree R V) := rrs_from (p c) c t.
Definition rrs_round (d : brancher R V) (c : seq V) := bind (grow_tree d) (rrs_rule c).

Lemma proper_rrs law c t : is_law law -> proper (rrs_from law c t).
Proof.
elim: t law c => [|q x hung IHh others IHo] law c law_law /=.
  by split=> //; case: law_law => _ ->; rewrite oner_eq0.
by split=> _; [apply: proper_bind; auto | apply: IHo; apply: remainder_law].
Qed.

Lemma rrs_from_exact d law c n f : honest d -> is_law law ->
  E (bind (grow_tree d) (rrs_from law c)) (fun v => E (go_on p n.+1 c (emitted v)) f) = \sum_x law x * after p n c f x.
Proof.
elim: d law c n => [|q below IHb next IHn] law c n d_honest law_law.
  rewrite E_bind [LHS]E_last_draw massE; by case: law_law => _ ->; rewrite divr1.
have [q_law b_honest n_honest] := d_honest.
rewrite E_grow_tree // -(one_position _ law_law q_law) mass_remainder; last by case: law_law.
rewrite -one_trial //; last by case: law_law.
apply: eq_bigr => x _; congr (_ * _).
have [pb pn] := (proper_grow_tree (b_honest x), proper_grow_tree (n_honest x)).
rewrite /= E_apart //; congr (_ * _ + _ * _); last first.
  by rewrite -E_bind IHn //; [apply: n_honest | apply: remainder_law].
rewrite /after; case: n => [|n].
  by rewrite -[RHS](E_const _ pb); apply: E_ext => hung; rewrite E_bind /= E_const //; apply: proper_rrs.
rewrite E_plain // -(IHb x _ _ _ (b_honest x) (p_law _)) E_bind.
by apply: E_ext => hung; rewrite E_bind.
Qed.

(* A round of `rrs` leaves the target's law, for every tree: siblings independent, without replacement or drawn from any law that
   depends on those before, to any depth. *)
Theorem rrs_exact d c : honest d -> exact p c (rrs_round d c).
Proof.
move=> d_honest; apply: exact_from => // [|n f]; last exact: rrs_from_exact.
by apply: proper_bind (proper_grow_tree d_honest) _ => t; apply: proper_rrs.
Qed.

Corollary rrs_without_replacement k q below c : is_law q -> (forall j x, honest (below j x)) ->
  exact p c (rrs_round (no_replacement k q [::] below) c).
Proof. by move=> q_law b; apply: rrs_exact; apply: honest_no_replacement. Qed.

End RecursiveRejection.
