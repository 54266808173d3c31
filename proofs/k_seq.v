(* `k_seq`: k independent siblings, each accepted with min(1, P/(rho Q)), one rho for all. The code is core/rules/k_seq.py. *)
From mathcomp Require Import all_ssreflect all_algebra.
From draftproof Require Import chance law decoding tree.
Import GRing.Theory Num.Theory Order.Theory.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Local Open Scope ring_scope.

Section KSeq.
Variables (R : realFieldType) (V : vocabulary).
Variable p : seq V -> V -> R.
Hypothesis p_law : forall c, is_law (p c).

(* beta = sum min(Q, P/rho): the chance that one sibling is accepted. *)
Definition beta (rho : R) (target drafted : V -> R) : R := mass (fun x => Num.min (drafted x) (target x / rho)).

(* rho is large enough for k siblings. The code looks for the least such number by bisection and keeps the upper end. *)
Definition fits (rho : R) (k : nat) (target drafted : V -> R) : bool :=
  let b := beta rho target drafted in 1 - (1 - b) ^+ k <= rho * b.

(* What the accepted siblings leave of the target; the target where nothing is left. *)
Definition rejected_mass (rho : R) (k : nat) (target drafted : V -> R) : V -> R :=
  let b := beta rho target drafted in
  if b == 0 then target else
  let left x := Num.max 0 (target x - Num.min (drafted x) (target x / rho) * ((1 - (1 - b) ^+ k) / b)) in
  if 0 < mass left then left else target.

(* rho for a target's law, a draft's law and a number of siblings. *)
Variable factor : (V -> R) -> (V -> R) -> nat -> R.
Hypothesis factor_gt0 : forall target drafted k, 0 < factor target drafted k.
Hypothesis factor_fits : forall target drafted k, fits (factor target drafted k) k target drafted.

Fixpoint width (t : tree R V) : nat := if t is Child _ _ _ others then (width others).+1 else 0.

(* A round at c, where t was drafted; and the siblings of t in turn, when rho and what to draw from in the end are known. *)
Fixpoint k_seq (c : seq V) (t : tree R V) : prog R V (verdict V) * (R -> (V -> R) -> prog R V (verdict V)) :=
  match t with
  | Bare => (last_draw (p c), fun rho left => last_draw left)
  | Child q x hung others =>
      let siblings rho left := Flip (p c x / (rho * q x)) (fun accepted =>
        if accepted then bind (k_seq (rcons c x) hung).1 (fun v => Ret (put x v)) else (k_seq c others).2 rho left) in
      let rho := factor (p c) q (width t) in
      (siblings rho (rejected_mass rho (width t) (p c) q), siblings)
  end.

Definition k_seq_rule (c : seq V) (t : tree R V) := (k_seq c t).1.
Definition k_seq_round (d : brancher R V) (c : seq V) := bind (grow_tree d) (k_seq_rule c).

(* k siblings, all drawn from q; what hangs below them likewise, each node with a law and a number of its own. *)
Fixpoint same_law (d : brancher R V) (q : V -> R) (k : nat) : Prop :=
  match d, k with
  | Leaf, 0 => True
  | Sibling q' below next, k'.+1 =>
      [/\ q' = q, is_law q, forall x, same_law (next x) q k' & forall x, exists q'' k'', same_law (below x) q'' k'']
  | _, _ => False
  end.

Lemma same_law_honest d q k : same_law d q k -> honest d.
Proof.
elim: d q k => [|q' below IHb next IHn] q [|k] //= [-> q_law n b]; split=> // x; last exact: IHn (n x).
by have [q'' [k'' s]] := b x; exact: IHb s.
Qed.

Lemma width_grow d q k : same_law d q k -> always (fun t => width t = k) (grow_tree d).
Proof.
elim: d q k => [|q' below IHb next IHn] q [|k] //= [_ _ n _] x.
apply: (always_bind (always_true _)) => hung _; apply: (always_bind (IHn x q k (n x))) => others /= ->; by [].
Qed.

Lemma mass_rejected rho k target drafted : is_law target -> 0 < mass (rejected_mass rho k target drafted).
Proof.
case=> _ target_1; rewrite /rejected_mass; case: ifP => _; first by rewrite target_1 ltr01.
by case: ifP => // _; rewrite target_1 ltr01.
Qed.

Lemma proper_k_seq c t : proper (k_seq c t).1 /\ forall rho left, mass left != 0 -> proper ((k_seq c t).2 rho left).
Proof.
elim: t c => [|q x hung IHh others IHo] c; first by split=> //; split=> //; case: (p_law c) => _ ->; rewrite oner_eq0.
have siblings rho left : mass left != 0 -> proper ((k_seq c (Child q x hung others)).2 rho left).
  move=> some; split=> _; last by case: (IHo c) => _; apply.
  by apply: proper_bind => //; case: (IHh (rcons c x)).
split=> //; apply: siblings; rewrite gt_eqF // mass_rejected //.
Qed.

Section OneNode.
Variables (rho : R) (k : nat) (target drafted : V -> R).
Hypotheses (rho_gt0 : 0 < rho) (rho_fits : fits rho k target drafted).
Hypotheses (target_law : is_law target) (drafted_law : is_law drafted).
Let accepted x := Num.min (drafted x) (target x / rho).
Let b := beta rho target drafted.

Lemma accepted_common x : common (fun y => target y / rho) drafted x = accepted x.
Proof. by rewrite /common /accepted minC. Qed.

Lemma accepted_ge0 x : 0 <= accepted x.
Proof. by rewrite /accepted le_minr divr_ge0 ?(ltW rho_gt0) ?andbT; [case: drafted_law | case: target_law]. Qed.

Lemma geometric m : (\sum_(j < m) (1 - b) ^+ j) * b = 1 - (1 - b) ^+ m.
Proof. by rewrite mulrC -[in RHS](expr1n _ m) subrXX_proof. Qed.

End OneNode.

End KSeq.
