(* Coq's own fractions as a real field: a field like any other to the theorems, and one whose numbers can be computed with. *)
From Coq Require Import QArith Qcanon.
From mathcomp Require Import all_ssreflect all_algebra ssrZ.
Import GRing.Theory Num.Theory Order.Theory.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Definition Qc_eqb (x y : Qc) : bool := Qeq_bool x y.

Lemma Qc_eqP : Equality.axiom Qc_eqb.
Proof.
move=> x y; apply: (iffP idP) => [|->]; last exact: Qeq_bool_refl.
by move/Qeq_bool_iff; apply: Qc_is_canon.
Qed.

Definition parts (x : Qc) : Z * Z := (Qnum x, Zpos (Qden x)).
Definition of_parts (ab : Z * Z) : Qc := Q2Qc (Qmake ab.1 (Z.to_pos ab.2)).
Lemma partsK : cancel parts of_parts.
Proof. by move=> x; apply: Qc_is_canon; case: x => -[a b] canon; exact: Qred_correct. Qed.

Canonical Qc_eqType := EqType Qc (EqMixin Qc_eqP).
Canonical Qc_choiceType := ChoiceType Qc (CanChoiceMixin partsK).

Lemma Qcplus_opp_l : left_inverse (Q2Qc 0) Qcopp Qcplus.
Proof. by move=> x; rewrite Qcplus_comm Qcplus_opp_r. Qed.

Canonical Qc_zmodType := ZmodType Qc (ZmodMixin Qcplus_assoc Qcplus_comm Qcplus_0_l Qcplus_opp_l).

Lemma Qc_1_neq0 : Q2Qc 1 != Q2Qc 0. Proof. by []. Qed.

Canonical Qc_ringType :=
  RingType Qc (ComRingMixin Qcmult_assoc Qcmult_comm Qcmult_1_l Qcmult_plus_distr_l Qc_1_neq0).
Canonical Qc_comRingType := ComRingType Qc Qcmult_comm.

Lemma Qc_mulVx (x : Qc) : x != 0%R -> (Qcinv x * x)%R = 1%R.
Proof. by move=> /eqP x_neq0; apply: Qcmult_inv_l. Qed.

Lemma Qc_inv0 : Qcinv 0%R = 0%R. Proof. by apply: Qc_is_canon. Qed.

Canonical Qc_unitRingType := UnitRingType Qc (FieldUnitMixin Qc_mulVx Qc_inv0).
Canonical Qc_comUnitRingType := [comUnitRingType of Qc].

Lemma Qc_field : GRing.Field.mixin_of [unitRingType of Qc]. Proof. exact. Qed.

Canonical Qc_idomainType := IdomainType Qc (FieldIdomainMixin Qc_field).
Canonical Qc_fieldType := FieldType Qc Qc_field.

Definition Qc_le (x y : Qc) : bool := Qle_bool x y.
Definition Qc_lt (x y : Qc) : bool := ~~ Qle_bool y x.
Definition Qc_norm (x : Qc) : Qc := if Qc_le (Q2Qc 0) x then x else Qcopp x.

Lemma Qc_leP (x y : Qc) : reflect (x <= y)%Qc (Qc_le x y).
Proof. by apply: (iffP idP) => /Qle_bool_iff. Qed.

Lemma Qc_le_add (x y : Qc) : Qc_le 0%R x -> Qc_le 0%R y -> Qc_le 0%R (x + y)%R.
Proof. by move=> /Qc_leP x0 /Qc_leP y0; apply/Qc_leP; have := Qcplus_le_compat _ _ _ _ x0 y0; rewrite Qcplus_0_l. Qed.

Lemma Qc_le_mul (x y : Qc) : Qc_le 0%R x -> Qc_le 0%R y -> Qc_le 0%R (x * y)%R.
Proof. by move=> /Qc_leP x0 /Qc_leP y0; apply/Qc_leP; have := Qcmult_le_compat_r _ _ _ x0 y0; rewrite Qcmult_0_l. Qed.

Lemma Qc_le_anti (x : Qc) : Qc_le 0%R x -> Qc_le x 0%R -> x = 0%R.
Proof. by move=> /Qc_leP x0 /Qc_leP x1; apply: Qcle_antisym. Qed.

Lemma Qc_sub_ge0 (x y : Qc) : Qc_le 0%R (y - x)%R = Qc_le x y.
Proof. by apply/Qc_leP/Qc_leP => [/(proj2 (Qcle_minus_iff x y))|/(proj1 (Qcle_minus_iff x y))]. Qed.

Lemma Qc_le_total (x y : Qc) : Qc_le x y || Qc_le y x.
Proof. by case: (Qclt_le_dec x y) => [/Qclt_le_weak|] /Qc_leP ->; rewrite ?orbT. Qed.

Lemma Qc_lt_def (x y : Qc) : Qc_lt x y = (y != x) && Qc_le x y.
Proof.
apply/idP/andP => [lt|[/eqP neq /Qc_leP le]].
  split; first by apply: contraNneq lt => ->; apply/Qc_leP; apply: Qcle_refl.
  by case/orP: (Qc_le_total x y) => //; rewrite /Qc_le (negbTE lt).
by apply/negP => /(Qc_leP y x) ge; apply: neq; apply: Qcle_antisym.
Qed.

Lemma Qc_normN (x : Qc) : Qc_norm (- x)%R = Qc_norm x.
Proof.
rewrite /Qc_norm; have opp : (Qcopp (- x)%R = x) by apply: Qcopp_involutive.
have geN : Qc_le (Q2Qc 0) (- x)%R = Qc_le x (Q2Qc 0) by rewrite -(Qc_sub_ge0 x) [(0 - x)%R]sub0r.
rewrite opp geN; case: ifP => [le|nle]; case: ifP => [ge|nge] //.
  by rewrite (Qc_le_anti ge le) oppr0.
by have := Qc_le_total x (Q2Qc 0); rewrite nle nge.
Qed.

Lemma Qc_ge0_norm (x : Qc) : Qc_le 0%R x -> Qc_norm x = x.
Proof. by rewrite /Qc_norm => ->. Qed.

Definition Qc_leMixin : realLeMixin [idomainType of Qc] :=
  RealLeMixin Qc_le_add Qc_le_mul Qc_le_anti Qc_sub_ge0 (Qc_le_total 0%R) Qc_normN Qc_ge0_norm Qc_lt_def.

Canonical Qc_porderType := POrderType ring_display Qc Qc_leMixin.
Canonical Qc_latticeType := LatticeType Qc Qc_leMixin.
Canonical Qc_distrLatticeType := DistrLatticeType Qc Qc_leMixin.
Canonical Qc_orderType := OrderType Qc Qc_le_total.
Canonical Qc_numDomainType := NumDomainType Qc Qc_leMixin.
Canonical Qc_normedZmodType := NormedZmodType Qc Qc Qc_leMixin.
Canonical Qc_numFieldType := [numFieldType of Qc].
Canonical Qc_realDomainType := [realDomainType of Qc].
Canonical Qc_realFieldType := [realFieldType of Qc].
