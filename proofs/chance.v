(* Procedures that draw tokens and flip coins, and what they give on average.

   A law is a function V -> R over a finite vocabulary. A procedure reaches randomness through two doors alone, those that the
   code's `Chance` has: a draw from weights that need not be normalised, and a coin. Two draws of one procedure are independent:
   that is the meaning given here, and it is an assumption about a generator.

   E m f is the expectation of f over what the procedure m returns. Two procedures have one law iff E agrees on every f. *)
From mathcomp Require Import all_ssreflect all_algebra.
Import GRing.Theory Num.Theory Order.Theory.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Local Open Scope ring_scope.

(* A finite type whose elements are listed, so that sums over it can be computed as well as reasoned about. *)
Structure vocabulary := Vocabulary {
  token :> finType;
  tokens : seq token;
  tokens_all : perm_eq tokens (enum token) }.

Section Mass.
Variables (R : realFieldType) (V : vocabulary).
Implicit Types (w p : V -> R).

Definition mass w : R := foldr (fun x m => w x + m) 0 (tokens V).

Lemma mass_tokens w : mass w = \sum_(x <- tokens V) w x.
Proof. by rewrite /mass; elim: (tokens V) => [|x s IH]; rewrite (big_nil, big_cons) //= IH. Qed.

Lemma massE w : mass w = \sum_x w x.
Proof. by rewrite mass_tokens (perm_big _ (tokens_all V)) big_enum. Qed.

Lemma eq_mass w w' : w =1 w' -> mass w = mass w'.
Proof. by move=> eq_w; rewrite !massE; apply: eq_bigr => x _; apply: eq_w. Qed.

Definition is_law p := (forall x, 0 <= p x) /\ mass p = 1.

(* The law of a token that is certain: how a guessed draft was drawn. *)
Definition one_hot (x : V) : V -> R := fun y => (x == y)%:R.

Lemma mass_one_hot x (g : V -> R) : mass (fun y => one_hot x y * g y) = g x.
Proof.
rewrite massE (bigD1 x) //= /one_hot eqxx mul1r big1 ?addr0 // => y neq_yx.
by rewrite eq_sym (negbTE neq_yx) mul0r.
Qed.

Lemma is_law_one_hot x : is_law (one_hot x).
Proof.
split=> [y|]; first exact: ler0n.
by rewrite -[RHS](mass_one_hot x (fun=> 1)); apply: eq_mass => y; rewrite mulr1.
Qed.

End Mass.

Section Procedures.
Variables (R : realFieldType) (V : vocabulary).

Inductive prog (A : Type) :=
  | Ret of A
  | Draw of (V -> R) & (V -> prog A)
  | Flip of R & (bool -> prog A).

Fixpoint bind A B (m : prog A) (next : A -> prog B) : prog B :=
  match m with
  | Ret a => next a
  | Draw w k => Draw w (fun x => bind (k x) next)
  | Flip a k => Flip a (fun b => bind (k b) next)
  end.

(* A coin of "probability" a: always heads from 1 on, never at 0 or below. *)
Definition clip (a : R) : R := Num.max 0 (Num.min 1 a).

Fixpoint E A (m : prog A) (f : A -> R) : R :=
  match m with
  | Ret a => f a
  | Draw w k => mass (fun x => w x * E (k x) f) / mass w
  | Flip a k => clip a * E (k true) f + (1 - clip a) * E (k false) f
  end.

(* The probability that m returns something with the property P. *)
Definition Pr A (m : prog A) (P : A -> bool) : R := E m (fun a => (P a)%:R).

(* Every draw that can be reached is from weights that have a mass. *)
Fixpoint proper A (m : prog A) : Prop :=
  match m with
  | Ret _ => True
  | Draw w k => mass w != 0 /\ forall x, proper (k x)
  | Flip a k => (clip a != 0 -> proper (k true)) /\ (1 - clip a != 0 -> proper (k false))
  end.

(* Whatever m returns has the property P. *)
Fixpoint always A (P : A -> Prop) (m : prog A) : Prop :=
  match m with
  | Ret a => P a
  | Draw _ k => forall x, always P (k x)
  | Flip _ k => forall b, always P (k b)
  end.

Lemma E_ext_always A (P : A -> Prop) (m : prog A) f g :
  always P m -> (forall a, P a -> f a = g a) -> E m f = E m g.
Proof.
move=> Pm eq_fg; elim: m Pm => [a|w k IH|a k IH] /= Pm; first exact: eq_fg.
  by congr (_ / _); apply: eq_mass => x; rewrite IH.
by rewrite !IH.
Qed.

Lemma always_true A (m : prog A) : always (fun=> True) m.
Proof. by elim: m. Qed.

Lemma E_ext A (m : prog A) f g : f =1 g -> E m f = E m g.
Proof. by move=> eq_fg; apply: (E_ext_always (always_true m)) => a _. Qed.

Lemma E_bind A B (m : prog A) (next : A -> prog B) f : E (bind m next) f = E m (fun a => E (next a) f).
Proof.
elim: m => [a|w k IH|a k IH] //=; last by rewrite !IH.
by congr (_ / _); apply: eq_mass => x; rewrite IH.
Qed.

Lemma E_add A (m : prog A) f g : E m (fun a => f a + g a) = E m f + E m g.
Proof.
elim: m => [a|w k IH|a k IH] //=; last by rewrite !IH !mulrDr addrACA.
rewrite -mulrDl; congr (_ / _); rewrite !massE -big_split /=.
by apply: eq_bigr => x _; rewrite IH mulrDr.
Qed.

Lemma E_scale A (m : prog A) r f : E m (fun a => r * f a) = r * E m f.
Proof.
elim: m => [a|w k IH|a k IH] //=; last by rewrite !IH mulrDr !(mulrCA r).
rewrite mulrA; congr (_ / _); rewrite !massE mulr_sumr.
by apply: eq_bigr => x _; rewrite IH mulrCA.
Qed.

Lemma E_const A (m : prog A) r : proper m -> E m (fun=> r) = r.
Proof.
elim: m => [a|w k IH|a k IH] //= pm.
  case: pm => m_neq0 pm; rewrite (@eq_mass _ _ _ (fun x => r * w x)) => [|x]; last by rewrite IH // mulrC.
  by rewrite massE -mulr_sumr -massE mulfK.
have side t (b : R) : (b != 0 -> proper (k t)) -> b * E (k t) (fun=> r) = b * r.
  by have [->|b_neq0 /(_ isT)/IH->] := eqVneq b 0; rewrite ?mul0r.
by case: pm => /side-> /side->; rewrite -mulrDl addrC subrK mul1r.
Qed.

Lemma E_sum A (m : prog A) (I : finType) (P : pred I) (f : I -> A -> R) :
  E m (fun a => \sum_(i | P i) f i a) = \sum_(i | P i) E m (f i).
Proof.
elim: m => [a|w k IH|a k IH] //=.
  rewrite -mulr_suml; congr (_ / _); rewrite massE.
  rewrite (eq_bigr (fun x => \sum_(i | P i) w x * E (k x) (f i))) => [|x _]; last by rewrite IH mulr_sumr.
  by rewrite exchange_big; apply: eq_bigr => i _; rewrite massE.
by rewrite !IH !mulr_sumr -big_split.
Qed.

Lemma E_drawn A (m : prog A) w (g : V -> A -> R) :
  E m (fun a => mass (fun y => w y * g y a) / mass w) = mass (fun y => w y * E m (g y)) / mass w.
Proof.
rewrite [in RHS]massE mulr_suml (eq_bigr (fun y => E m (fun a => w y / mass w * g y a))) => [|y _]; last first.
  by rewrite E_scale mulrAC.
rewrite -E_sum; apply: E_ext => a; rewrite [X in X / _]massE mulr_suml; apply: eq_bigr => y _; exact: mulrAC.
Qed.

(* Two independent things may be done in either order. *)
Lemma E_swap A B (m : prog A) (m' : prog B) f : E m (fun a => E m' (f a)) = E m' (fun b => E m (fun a => f a b)).
Proof.
elim: m => [a|w k IH|a k IH] //=; last by rewrite E_add !E_scale !IH.
by rewrite E_drawn; congr (_ / _); apply: eq_mass => x; rewrite IH.
Qed.

Lemma E_draw A p (k : V -> prog A) f : is_law p -> E (Draw p k) f = \sum_x p x * E (k x) f.
Proof. by case=> _ /= ->; rewrite divr1 massE. Qed.

Lemma proper_bind_always A B (P : A -> Prop) (m : prog A) (next : A -> prog B) :
  proper m -> always P m -> (forall a, P a -> proper (next a)) -> proper (bind m next).
Proof. by move=> pm Pm pnext; elim: m pm Pm => [a|w k IH|a k IH] /= pm Pm; [auto | split | split]; case: pm; auto. Qed.

Lemma proper_bind A B (m : prog A) (next : A -> prog B) :
  proper m -> (forall a, proper (next a)) -> proper (bind m next).
Proof. by move=> pm pnext; apply: (proper_bind_always pm (always_true m)) => a _. Qed.

Lemma proper_draw A p (k : V -> prog A) : is_law p -> (forall x, proper (k x)) -> proper (Draw p k).
Proof. by case=> _ /= -> pk; rewrite oner_eq0. Qed.

Lemma clip_id (r : R) : 0 <= r <= 1 -> clip r = r.
Proof. by case/andP=> r_ge0 r_le1; rewrite /clip min_r // max_r. Qed.

Lemma clip_range (r : R) : 0 <= clip r <= 1.
Proof. by rewrite /clip le_maxr lexx le_maxl ler01 le_minl lexx. Qed.

Lemma always_bind A B (P : A -> Prop) (Q : B -> Prop) (m : prog A) (next : A -> prog B) :
  always P m -> (forall a, P a -> always Q (next a)) -> always Q (bind m next).
Proof. by move=> Pm Qnext; elim: m Pm => [a|w k IH|a k IH] //=; auto. Qed.

End Procedures.

Arguments Ret {R V A}.
