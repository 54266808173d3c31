(* `greedy_k`: the draft's likeliest tokens as constants and one draw from the rest. The code is core/rules/greedy_k.py. *)
From mathcomp Require Import all_ssreflect all_algebra.
From draftproof Require Import chance law decoding tree.
Import GRing.Theory Num.Theory Order.Theory.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Local Open Scope ring_scope.

Section GreedyK.
Variables (R : realFieldType) (V : vocabulary).
Variable p : seq V -> V -> R.
Hypothesis p_law : forall c, is_law (p c).

(* A round at c, where t was drafted; and what follows once y is emitted there, whoever drew it: the first child that proposes
   it is gone down. *)
Fixpoint greedy_k (c : seq V) (t : tree R V) : prog R V (verdict V) * (V -> prog R V (verdict V)) :=
  match t with
  | Bare => (last_draw (p c), fun y => Ret ([::], y))
  | Child q x hung others =>
      let go_down := bind (greedy_k (rcons c x) hung).1 (fun v => Ret (put x v)) in
      let look_up y := if x == y then go_down else (greedy_k c others).2 y in
      (Flip (p c x / q x) (fun accepted => if accepted then go_down else Draw (residual (p c) q) look_up), look_up)
  end.

Definition greedy_k_rule (c : seq V) (t : tree R V) := (greedy_k c t).1.
Definition greedy_k_round (d : brancher R V) (c : seq V) := bind (grow_tree d) (greedy_k_rule c).

Lemma proper_greedy_k c t : proper (greedy_k c t).1 /\ forall y, proper ((greedy_k c t).2 y).
Proof.
elim: t c => [|q x hung IHh others IHo] c /=; first by split=> //; split=> //; case: (p_law c) => _ ->; rewrite oner_eq0.
have down : proper (bind (greedy_k (rcons c x) hung).1 (fun v => Ret (put x v))).
  by apply: proper_bind => //; case: (IHh (rcons c x)).
have up y : proper (if x == y then bind (greedy_k (rcons c x) hung).1 (fun v => Ret (put x v)) else (greedy_k c others).2 y).
  by case: ifP => // _; case: (IHo c).
by split=> //; split=> // _; split=> //; rewrite gt_eqF // mass_residual.
Qed.

Lemma greedy_k_exact_both d c n f : honest d ->
  let looked_at v := E (go_on p n.+1 c (emitted v)) f in
  E (bind (grow_tree d) (fun t => (greedy_k c t).1)) looked_at = \sum_x p c x * after p n c f x /\
  forall y, E (bind (grow_tree d) (fun t => (greedy_k c t).2 y)) looked_at = after p n c f y.
Proof.
elim: d c n => [|q below IHb next IHn] c n d_honest looked_at.
  split=> [|y]; last by rewrite /looked_at /= go_on_nil.
  by rewrite E_bind [LHS]E_last_draw massE; case: (p_law c) => _ ->; rewrite divr1.
have [q_law b_honest n_honest] := d_honest; have [q_ge0 q_1] := q_law.
have [pb pn] := (fun x => proper_grow_tree (b_honest x), fun x => proper_grow_tree (n_honest x)).
(* below an emitted x *)
have down x : E (grow_tree (below x)) (fun hung => E (bind (greedy_k (rcons c x) hung).1 (fun v => Ret (put x v))) looked_at) =
    after p n c f x.
  rewrite /after /looked_at; case: n {looked_at} => [|n].
    rewrite -[RHS](E_const _ (pb x)); apply: E_ext => hung; rewrite E_bind /= E_const //.
    by case: (proper_greedy_k (rcons c x) hung).
  rewrite E_plain // -(IHb x (rcons c x) n (b_honest x)).1 E_bind.
  by apply: E_ext => hung; rewrite E_bind.
(* looked up among the siblings that begin with x *)
have up x y : E (grow_tree (below x)) (fun hung => E (grow_tree (next x)) (fun others =>
    E ((greedy_k c (Child q x hung others)).2 y) looked_at)) = after p n c f y.
  rewrite /=; case: eqVneq => [<-|_]; first by rewrite E_first.
  by rewrite E_const // -(IHn x c n (n_honest x)).2 E_bind.
split=> [|y]; last first.
  rewrite E_grow_tree //; under eq_bigr do rewrite up.
  by rewrite -mulr_suml -massE q_1 mul1r.
rewrite E_grow_tree // -(one_position _ (p_law c) q_law) -one_trial //; last by case: (p_law c).
apply: eq_bigr => x _; congr (_ * _).
rewrite (eq_mass (w' := fun y => residual (p c) q y * E (grow_tree (below x)) (fun hung => E (grow_tree (next x)) (fun others =>
    E ((greedy_k c (Child q x hung others)).2 y) looked_at)))) => [|y]; last by rewrite up.
rewrite -(down x) -E_drawn -!E_scale -E_add; apply: E_ext => hung.
by rewrite -E_drawn E_add E_const // E_scale.
Qed.

(* A round of `greedy_k` leaves the target's law; so it does for the likeliest tokens and one draw from the rest. *)
Theorem greedy_k_exact d c : honest d -> exact p c (greedy_k_round d c).
Proof.
move=> d_honest; apply: exact_from => // [|n f]; last by case: (greedy_k_exact_both c n f d_honest).
by apply: proper_bind (proper_grow_tree d_honest) _ => t; case: (proper_greedy_k c t).
Qed.

End GreedyK.
