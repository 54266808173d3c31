(* Procedures run instead of reasoned about: everything they can return, with its probability, in fractions. *)
From Coq Require Import ZArith QArith Qcanon.
From mathcomp Require Import all_ssreflect all_algebra.
From draftproof Require Import chance law decoding token block tree matching rrs greedy_k k_seq traversal rational.
Import GRing.Theory Num.Theory Order.Theory.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Local Open Scope ring_scope.

Section Outcomes.
Variables (R : realFieldType) (V : vocabulary) (A : Type).

(* What m returns, each outcome that can come with its probability times `weight`. *)
Fixpoint outcomes (m : prog R V A) (weight : R) : seq (A * R) :=
  if weight == 0 then [::] else
  match m with
  | Ret a => [:: (a, weight)]
  | Draw w k => let whole := mass w in flatten [seq outcomes (k x) (weight * (w x / whole)) | x <- tokens V]
  | Flip a k => outcomes (k true) (weight * clip a) ++ outcomes (k false) (weight * (1 - clip a))
  end.

Definition total (f : A -> R) (o : seq (A * R)) : R := \sum_(i <- o) i.2 * f i.1.

(* They are what the theorems speak of. *)
Theorem outcomes_E m weight f : total f (outcomes m weight) = weight * E m f.
Proof.
elim: m weight => [a|w k IH|a k IH] weight /=; case: eqP => [->|_]; rewrite ?mul0r /total ?big_nil //.
- by rewrite big_seq1.
- rewrite big_flatten big_map /= [X in _ = _ * (X / _)]mass_tokens mulr_suml mulr_sumr; apply: eq_bigr => x _.
  by rewrite -/(total f _) IH -!mulrA [_^-1 * _]mulrC.
by rewrite big_cat /= -[X in X + _]/(total f _) -[X in _ + X]/(total f _) !IH -!mulrA -mulrDr.
Qed.

End Outcomes.

(* The three tokens of the toys. *)
Definition zero : 'I_3 := @Ordinal 3 0 isT.
Definition one : 'I_3 := @Ordinal 3 1 isT.
Definition two : 'I_3 := @Ordinal 3 2 isT.

Lemma three_all : perm_eq [:: zero; one; two] (enum 'I_3).
Proof.
apply: uniq_perm; rewrite ?enum_uniq // => x; rewrite mem_enum !inE.
by case: x => -[|[|[|m]]].
Qed.

Definition three := Vocabulary three_all.

(* A law given in 64ths, which double precision holds without rounding. *)
Definition in_64ths (a b c : Z) : three -> Qc := fun x => Q2Qc (Qmake (nth Z0 [:: a; b; c] x) 64).

(* The target, by the texts that a case asks for. *)
Definition by_text (rows : seq (seq nat * (three -> Qc))) (c : seq three) : three -> Qc :=
  foldr (fun row rest => if row.1 == [seq nat_of_ord x | x <- c] then row.2 else rest) (@one_hot Qc_realFieldType three zero) rows.

(* (accepted tokens, token after them, numerator, denominator) *)
Definition shown (m : prog Qc_realFieldType three (verdict three)) : seq (seq nat * nat * (Z * Z)) :=
  [seq ([seq nat_of_ord x | x <- i.1.1], nat_of_ord i.1.2, parts i.2) | i <- outcomes m 1].
