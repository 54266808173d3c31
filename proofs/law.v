(* One position: what two laws have in common, what the target has beyond the draft, and why a trial and a residual make the target. *)
From mathcomp Require Import all_ssreflect all_algebra.
From draftproof Require Import chance.
Import GRing.Theory Num.Theory Order.Theory.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Local Open Scope ring_scope.

Section Laws.
Variables (R : realFieldType) (V : vocabulary).
Implicit Types (p q w : V -> R).

(* min(p, q), of mass 1 - TV(p, q) where both are laws. *)
Definition common p q : V -> R := fun x => Num.min (p x) (q x).

(* (p - q)+ *)
Definition excess p q : V -> R := fun x => Num.max 0 (p x - q x).

(* `residual` of the code: what a rejected token is replaced from; p itself where nothing is left. *)
Definition residual p q : V -> R := if 0 < mass (excess p q) then excess p q else p.

(* The same as a law, for rules that go on with it. *)
Definition remainder p q : V -> R :=
  let left := mass (excess p q) in if 0 < left then fun x => excess p q x / left else p.

Lemma common_excess p q x : common p q x + excess p q x = p x.
Proof.
rewrite /common /excess; case: (lerP (p x) (q x)) => [le|lt].
  by rewrite max_l ?addr0 // subr_le0.
by rewrite max_r ?subr_ge0 ?ltW // addrC subrK.
Qed.

Lemma excess_ge0 p q x : 0 <= excess p q x.
Proof. by rewrite /excess le_maxr lexx. Qed.

Lemma mass_ge0 w : (forall x, 0 <= w x) -> 0 <= mass w.
Proof. by move=> w_ge0; rewrite massE; apply: sumr_ge0 => x _. Qed.

Lemma mass_eq0 w : (forall x, 0 <= w x) -> mass w <= 0 -> forall x, w x = 0.
Proof.
move=> w_ge0 m_le0 x; apply/eqP; have : mass w == 0 by rewrite eq_le m_le0 mass_ge0.
by rewrite massE psumr_eq0 // => /allP/(_ x); rewrite mem_index_enum; apply.
Qed.

Lemma mass_excess p q : mass (excess p q) = mass p - mass (common p q).
Proof. by rewrite !massE -sumrB; apply: eq_bigr => x _; rewrite -[p x](common_excess p q) addrC addKr. Qed.

Lemma common_ge0 p q x : 0 <= p x -> 0 <= q x -> 0 <= common p q x.
Proof. by move=> p0 q0; rewrite /common le_minr p0. Qed.

(* A draft x drawn from q and accepted with p(x)/q(x) is drawn and accepted with min(p, q)(x). *)
Lemma accept_common p q x : 0 <= p x -> 0 <= q x -> q x * clip (p x / q x) = common p q x.
Proof.
move=> p_ge0 q_ge0; rewrite /common /clip max_r; last by rewrite le_minr ler01 divr_ge0.
have [->|q_neq0] := eqVneq (q x) 0; first by rewrite mul0r min_r.
have q_gt0 : 0 < q x by rewrite lt_def q_neq0.
have [le|lt] := lerP (p x) (q x).
  rewrite min_r; last by rewrite ler_pdivr_mulr // mul1r.
  by rewrite mulrC divfK.
by rewrite min_l ?mulr1 // ler_pdivl_mulr // mul1r ltW.
Qed.

(* One trial of a draft from q against weights p: G follows an accepted x, K a rejection, whatever was rejected. *)
Lemma one_trial p q (G : V -> R) K : is_law q -> (forall x, 0 <= p x) ->
  \sum_x q x * (clip (p x / q x) * G x + (1 - clip (p x / q x)) * K) =
  \sum_x common p q x * G x + (1 - mass (common p q)) * K.
Proof.
move=> [q_ge0 q_1] p_ge0.
have -> : 1 - mass (common p q) = \sum_x (q x - common p q x) by rewrite sumrB -!massE q_1.
rewrite mulr_suml -big_split /=; apply: eq_bigr => x _.
by rewrite mulrDr !mulrA mulrBr mulr1 !accept_common.
Qed.

(* The residual, drawn as often as there is something left, gives what is left. *)
Lemma residual_gives p q (G : V -> R) :
  mass (excess p q) * (mass (fun y => residual p q y * G y) / mass (residual p q)) = \sum_x excess p q x * G x.
Proof.
rewrite /residual; case: ltP => [left_gt0|left_le0].
  by rewrite mulrC divfK ?gt_eqF // massE.
have nothing := mass_eq0 (excess_ge0 p q) left_le0.
by rewrite massE !big1 ?mul0r // => x _; rewrite nothing ?mul0r.
Qed.

Lemma left_over p q : is_law p -> 1 - mass (common p q) = mass (excess p q).
Proof. by case=> _ p_1; rewrite mass_excess p_1. Qed.

(* The lemma everything rests on: min(p, q) + (1 - sum min(p, q)) residual = p, where nothing is left included. *)
Theorem one_position p q (G : V -> R) : is_law p -> is_law q ->
  \sum_x common p q x * G x +
  (1 - mass (common p q)) * (mass (fun y => residual p q y * G y) / mass (residual p q)) = \sum_x p x * G x.
Proof.
move=> p_law _; rewrite left_over // residual_gives -big_split /=.
by apply: eq_bigr => x _; rewrite -mulrDl common_excess.
Qed.

(* The law of the emitted token itself: accepted or replaced, it is the target's. *)
Corollary one_position_law p q y : is_law p -> is_law q ->
  common p q y + (1 - mass (common p q)) * (residual p q y / mass (residual p q)) = p y.
Proof.
move=> p_law q_law; have := one_position (one_hot R y) p_law q_law.
have at_y w : \sum_x w x * one_hot R y x = w y.
  by rewrite -[RHS](mass_one_hot y w) massE; apply: eq_bigr => x _; rewrite mulrC.
by rewrite !at_y (_ : mass (fun z => _ * one_hot R y z) = residual p q y) // massE at_y.
Qed.

Lemma residual_ge0 p q x : (forall x, 0 <= p x) -> 0 <= residual p q x.
Proof. by rewrite /residual; case: ifP => // _ _; apply: excess_ge0. Qed.

Lemma mass_residual p q : is_law p -> 0 < mass (residual p q).
Proof. by case=> _ p_1; rewrite /residual; case: ifP => // _; rewrite p_1 ltr01. Qed.

Lemma mass_remainder p q (G : V -> R) : mass p = 1 ->
  mass (fun y => residual p q y * G y) / mass (residual p q) = \sum_y remainder p q y * G y.
Proof.
move=> p_1; rewrite /residual /remainder; case: ifP => _; last by rewrite p_1 divr1 massE.
by rewrite massE mulr_suml; apply: eq_bigr => y _; rewrite mulrAC.
Qed.

Lemma remainder_law p q : is_law p -> is_law (remainder p q).
Proof.
move=> p_law; rewrite /remainder; case: ifP => // left_gt0; split=> [x|].
  by rewrite divr_ge0 ?excess_ge0 ?ltW.
by rewrite massE -mulr_suml -massE divff ?gt_eqF.
Qed.

(* A guessed draft: its law is one-hot, so it is accepted with p(x) and replaced from p without x. *)
Lemma guessed_ratio p (x : V) : p x / one_hot R x x = p x.
Proof. by rewrite /one_hot eqxx divr1. Qed.

Lemma guessed_excess p (x y : V) : is_law p -> excess p (one_hot R x) y = if x == y then 0 else p y.
Proof.
move=> [p_ge0 p_1]; rewrite /excess /one_hot; case: eqVneq => [<-|_]; last by rewrite subr0 max_r.
rewrite max_l // subr_le0 -p_1 massE (bigD1 x) //= ler_addl sumr_ge0 // => z _.
Qed.

Lemma overlap_one_hot p (x : V) : is_law p -> mass (common p (one_hot R x)) = p x.
Proof.
move=> p_law; have [p_ge0 _] := p_law; rewrite massE (bigD1 x) //= big1 ?addr0 => [|y neq].
  by rewrite -[RHS](common_excess p (one_hot R x)) guessed_excess // eqxx addr0.
rewrite -[LHS](addrK (excess p (one_hot R x) y)) common_excess guessed_excess //.
by rewrite eq_sym (negbTE neq) subrr.
Qed.

End Laws.
