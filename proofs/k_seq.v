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
Hypothesis factor_fits : forall target drafted k, is_law target -> is_law drafted ->
  0 < factor target drafted k.+1 /\ fits (factor target drafted k.+1) k.+1 target drafted.

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
Proof.
have [[t_ge0 _] [d_ge0 _]] := (target_law, drafted_law).
by rewrite /accepted le_minr d_ge0 divr_ge0 // ltW.
Qed.

Lemma geometric m : (\sum_(j < m) (1 - b) ^+ j) * b = 1 - (1 - b) ^+ m.
Proof. by apply: oppr_inj; rewrite opprB subrX1 addrAC subrr add0r mulNr mulrC. Qed.

(* The accepted siblings and what is drawn after k rejections make the target. *)
Lemma one_node (G : V -> R) :
  \sum_x (\sum_(j < k) (1 - b) ^+ j) * accepted x * G x +
  (1 - b) ^+ k * (mass (fun y => rejected_mass rho k target drafted y * G y) / mass (rejected_mass rho k target drafted)) =
  \sum_x target x * G x.
Proof.
have [target_ge0 target_1] := target_law.
rewrite /rejected_mass -/b; case: eqP => [b_0|/eqP b_neq0].
  have none : forall x, accepted x = 0 by apply: mass_eq0 accepted_ge0 _; rewrite -[mass _]/b b_0.
  rewrite big1 ?add0r => [|x _]; last by rewrite none mulr0 mul0r.
  by rewrite b_0 subr0 expr1n mul1r target_1 divr1 massE.
have b_gt0 : 0 < b by rewrite lt_def b_neq0 mass_ge0 //; exact: accepted_ge0.
set s := (1 - (1 - b) ^+ k) / b; pose taken x := accepted x * s.
have -> : \sum_(j < k) (1 - b) ^+ j = s by rewrite /s -geometric mulfK.
have within x : taken x <= target x.
  have s_le : s <= rho by rewrite ler_pdivr_mulr.
  apply: le_trans (ler_wpmul2l (accepted_ge0 x) s_le) _.
  by rewrite -ler_pdivl_mulr // /accepted le_minl lexx orbT.
rewrite -[if _ then _ else _]/(residual target taken) (_ : (1 - b) ^+ k = mass (excess target taken)); last first.
  rewrite mass_excess target_1 (_ : mass (common _ _) = 1 - (1 - b) ^+ k) ?subKr //.
  rewrite -[RHS](divfK b_neq0) mulrC -/s /b /beta !massE mulr_suml; apply: eq_bigr => x _.
  by rewrite /common min_r.
rewrite residual_gives -big_split /=; apply: eq_bigr => x _.
by rewrite -[target x in RHS](common_excess target taken x) /common min_r // mulrDl /taken (mulrC s).
Qed.

End OneNode.

Lemma k_seq_exact_both d c n f : let looked_at v := E (go_on p n.+1 c (emitted v)) f in
  (forall q k, same_law d q k ->
    E (bind (grow_tree d) (fun t => (k_seq c t).1)) looked_at = \sum_x p c x * after p n c f x) /\
  (forall q k rho left, same_law d q k -> 0 < rho -> let b := beta rho (p c) q in
    E (bind (grow_tree d) (fun t => (k_seq c t).2 rho left)) looked_at =
    \sum_x (\sum_(j < k) (1 - b) ^+ j) * Num.min (q x) (p c x / rho) * after p n c f x + (1 - b) ^+ k * E (last_draw left) looked_at).
Proof.
elim: d c n => [|q' below IHb next IHn] c n looked_at.
  split=> [q k _|q [|k] //= rho left _ _].
    by rewrite E_bind [LHS]E_last_draw massE; case: (p_law c) => _ ->; rewrite divr1.
  by rewrite big1 ?add0r ?expr0 ?mul1r // => x _; rewrite big_ord0 !mul0r.
have siblings q k rho left : same_law (Sibling q' below next) q k -> 0 < rho -> let b := beta rho (p c) q in
    E (bind (grow_tree (Sibling q' below next)) (fun t => (k_seq c t).2 rho left)) looked_at =
    \sum_x (\sum_(j < k) (1 - b) ^+ j) * Num.min (q x) (p c x / rho) * after p n c f x + (1 - b) ^+ k * E (last_draw left) looked_at.
  case: k => [|k] // [-> q_law n_same b_same] rho_gt0 b.
  set rest := \sum_x (\sum_(j < k) (1 - b) ^+ j) * Num.min (q x) (p c x / rho) * after p n c f x + (1 - b) ^+ k * E (last_draw left) looked_at.
  rewrite E_grow_tree // (eq_bigr (fun x => q x * (clip (p c x / rho / q x) * after p n c f x + (1 - clip (p c x / rho / q x)) * rest))).
    rewrite (@one_trial R V (fun x => p c x / rho)) // => [|x]; last by rewrite divr_ge0 ?(ltW rho_gt0) //; case: (p_law c).
    have -> : mass (common (fun x => p c x / rho) q) = b by apply: eq_mass => x; rewrite /common minC.
    rewrite /rest mulrDr addrA mulr_sumr -big_split exprS mulrA; congr (_ + _); apply: eq_bigr => x _ /=.
    rewrite -(accepted_common rho (p c) q) (_ : \sum_(_ < k.+1) _ = 1 + (1 - b) * \sum_(j < k) (1 - b) ^+ j); last first.
      by rewrite big_ord_recl expr0 mulr_sumr; congr (_ + _); apply: eq_bigr => j _; rewrite exprS.
    by rewrite [(1 + _ * _) * _]mulrDl mul1r [in RHS]mulrDl !mulrA.
  move=> x _; congr (_ * _); have [q2 [k2 b2]] := b_same x.
  have [pb pn] := (proper_grow_tree (same_law_honest b2), proper_grow_tree (same_law_honest (n_same x))).
  rewrite /= invfM mulrA E_apart //; congr (_ * _ + _ * _).
    rewrite /after /looked_at; case: n {looked_at rest} => [|n].
      rewrite -[RHS](E_const _ pb); apply: E_ext => hung; rewrite E_bind /= E_const //.
      by case: (proper_k_seq (rcons c x) hung).
    rewrite E_plain //; case: (IHb x (rcons c x) n) => /(_ q2 k2 b2) <- _; rewrite E_bind.
    by apply: E_ext => hung; rewrite E_bind.
  by rewrite -E_bind; case: (IHn x c n) => _ /(_ q k rho left (n_same x) rho_gt0).
split=> // q [|k] // same; have [_ q_law n_same b_same] := same.
have [rho_gt0 rho_fits] := factor_fits k (p_law c) q_law.
set rho := factor _ _ _ in rho_gt0 rho_fits; pose left := rejected_mass rho k.+1 (p c) q.
have node : always (fun t => (k_seq c t).1 = (k_seq c t).2 rho left) (grow_tree (Sibling q' below next)).
  case: same => -> _ _ _ x; apply: (always_bind (always_true _)) => hung _.
  by apply: (always_bind (width_grow (n_same x))) => others /= ->.
rewrite E_bind (E_ext_always node (g := fun t => E ((k_seq c t).2 rho left) looked_at)) => [|t ->] //.
rewrite -E_bind (siblings q k.+1) // E_last_draw; exact: one_node.
Qed.

(* A round of `k_seq` leaves the target's law, whatever the number of siblings, for every rho that is large enough. *)
Theorem k_seq_exact d q k c : same_law d q k -> exact p c (k_seq_round d c).
Proof.
move=> same; apply: exact_from => // [|n f]; last by case: (k_seq_exact_both d c n f) => both _; apply: both same.
by apply: proper_bind (proper_grow_tree (same_law_honest same)) _ => t; case: (proper_k_seq c t).
Qed.

End KSeq.

(* There always is such a rho: k itself. *)
Lemma k_fits (R : realFieldType) (V : vocabulary) k (target drafted : V -> R) : is_law target -> is_law drafted ->
  fits k.+1%:R k.+1 target drafted.
Proof.
move=> [target_ge0 _] [drafted_ge0 drafted_1]; rewrite /fits; set b := beta _ _ _.
have b_le1 : b <= 1.
  by rewrite -drafted_1 /b /beta !massE; apply: ler_sum => x _; rewrite le_minl lexx.
elim: k.+1 => [|m IH]; first by rewrite expr0 subrr mul0r.
have b_ge0 : 0 <= b by apply: mass_ge0 => x; rewrite le_minr drafted_ge0 divr_ge0 ?ler0n.
rewrite mulrS mulrDl mul1r exprS -[X in X <= _](subrK b) [X in _ <= X]addrC ler_add2r (le_trans _ IH) //.
rewrite mulrBl mul1r opprB addrAC -addrA.
rewrite ler_add2l addrA -[X in _ <= X]add0r ler_add2r addrC subr_le0 ler_pimulr //.
by apply: exprn_ile1; rewrite ?subr_ge0 // ler_subl_addr ler_addl.
Qed.

(* The least rho that fits, from above, by halving [1, k]: `division_factor` of the code. *)
Section Factor.
Variables (R : realFieldType) (V : vocabulary).
Implicit Types target drafted : V -> R.

Fixpoint halve (n k : nat) target drafted (low high : R) : R :=
  if n is n'.+1 then
    let middle := (low + high) / (1 + 1) in
    if fits middle k target drafted then halve n' k target drafted low middle else halve n' k target drafted middle high
  else high.

Definition division_factor target drafted (k : nat) : R :=
  if fits 1 k target drafted then 1 else halve 60 k target drafted 1 k%:R.

Lemma halve_fits n k target drafted low high : 0 < low -> 0 < high -> fits high k target drafted ->
  0 < halve n k target drafted low high /\ fits (halve n k target drafted low high) k target drafted.
Proof.
elim: n low high => [|n IH] low high //= low_gt0 high_gt0 high_fits.
have middle_gt0 : 0 < (low + high) / (1 + 1) by rewrite divr_gt0 ?addr_gt0 ?ltr01.
by case: ifP => middle_fits; apply: IH.
Qed.

Lemma division_factor_fits target drafted k : is_law target -> is_law drafted ->
  0 < division_factor target drafted k.+1 /\ fits (division_factor target drafted k.+1) k.+1 target drafted.
Proof.
move=> target_law drafted_law; rewrite /division_factor; case: ifP => [one_fits|_]; first by rewrite ltr01.
by apply: halve_fits; rewrite ?ltr01 ?ltr0Sn //; apply: k_fits.
Qed.

End Factor.
