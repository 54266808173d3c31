(* Drafts that branch: what may draft them, and the drafts themselves. *)
From mathcomp Require Import all_ssreflect all_algebra.
From draftproof Require Import chance law decoding.
Import GRing.Theory Num.Theory Order.Theory.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Local Open Scope ring_scope.

Section Trees.
Variables (R : realFieldType) (V : vocabulary).

(* At a node nothing more is drafted, or one sibling more is drawn from a law. What hangs below it and which siblings come after
   it may depend on its token and on everything before. So shapes, numbers of siblings and laws are free; a decision about a
   draft made after seeing it cannot be written. *)
Inductive brancher := Leaf | Sibling of (V -> R) & (V -> brancher) & (V -> brancher).

Fixpoint honest (d : brancher) : Prop :=
  if d is Sibling q below next then [/\ is_law q, forall x, honest (below x) & forall x, honest (next x)] else True.

(* A drafted tree: the first sibling with the law it was drawn from, what hangs below it, and the siblings after it. *)
Inductive tree := Bare | Child of (V -> R) & V & tree & tree.

Fixpoint grow_tree (d : brancher) : prog R V tree :=
  match d with
  | Leaf => Ret Bare
  | Sibling q below next => Draw q (fun x =>
      bind (grow_tree (below x)) (fun hung => bind (grow_tree (next x)) (fun others => Ret (Child q x hung others))))
  end.

(* Independent siblings: k draws from one law. *)
Fixpoint independent (k : nat) (q : V -> R) (below : nat -> V -> brancher) : brancher :=
  if k is k'.+1 then Sibling q (below k') (fun=> independent k' q below) else Leaf.

(* Siblings without replacement: a drawn token leaves the law, which is renormalised; fewer come where the support ends. *)
Definition without (q : V -> R) (removed : seq V) : V -> R := fun x => if x \in removed then 0 else q x.

Definition normalised (w : V -> R) : V -> R := fun x => w x / mass w.

Fixpoint no_replacement (k : nat) (q : V -> R) (removed : seq V) (below : nat -> V -> brancher) : brancher :=
  if k is k'.+1 then
    if 0 < mass (without q removed)
    then Sibling (normalised (without q removed)) (below k') (fun x => no_replacement k' q (x :: removed) below)
    else Leaf
  else Leaf.

(* The k - 1 likeliest tokens as constants (`top`) and one draw from the rest. The drawn one stands first here, because the
   rules ask for it first; the code appends it. *)
Fixpoint guessed (top : seq V) (below : V -> brancher) : brancher :=
  if top is x :: top' then Sibling (one_hot R x) below (fun=> guessed top' below) else Leaf.

Definition top_and_one (top : seq V) (q : V -> R) (below : V -> brancher) : brancher :=
  Sibling (normalised (without q top)) below (fun=> guessed top below).

Lemma normalised_law (w : V -> R) : (forall x, 0 <= w x) -> 0 < mass w -> is_law (normalised w).
Proof.
move=> w_ge0 w_gt0; split=> [x|]; first by rewrite divr_ge0 // ltW.
by rewrite massE -mulr_suml -massE divff // gt_eqF.
Qed.

Lemma without_ge0 (q : V -> R) removed x : (forall y, 0 <= q y) -> 0 <= without q removed x.
Proof. by move=> q_ge0; rewrite /without; case: ifP. Qed.

Lemma honest_independent k q below : is_law q -> (forall j x, honest (below j x)) -> honest (independent k q below).
Proof. by move=> q_law b; elim: k => //= k IH; split. Qed.

Lemma honest_no_replacement k q removed below : is_law q -> (forall j x, honest (below j x)) ->
  honest (no_replacement k q removed below).
Proof.
move=> q_law b; elim: k removed => //= k IH removed; case: ifP => // some; split=> //.
by apply: normalised_law => // x; apply: without_ge0; case: q_law.
Qed.

Lemma honest_guessed top below : (forall x, honest (below x)) -> honest (guessed top below).
Proof. by move=> b; elim: top => //= x top IH; split=> //; apply: is_law_one_hot. Qed.

Lemma honest_top_and_one top q below : is_law q -> 0 < mass (without q top) -> (forall x, honest (below x)) ->
  honest (top_and_one top q below).
Proof.
move=> q_law some b; split=> //; last by move=> _; apply: honest_guessed.
by apply: normalised_law => // x; apply: without_ge0; case: q_law.
Qed.

Lemma proper_grow_tree d : honest d -> proper (grow_tree d).
Proof.
elim: d => [|q below IHb next IHn] //= [q_law b n]; split; first by case: q_law => _ ->; rewrite oner_eq0.
by move=> x; apply: proper_bind; [exact: IHb | move=> hung; apply: proper_bind; [exact: IHn |]].
Qed.

(* Growing a tree, and then verifying, is drawing one token, growing what is below it and beside it, and verifying. *)
Lemma E_grow_tree B q below next (verify : tree -> prog R V B) f : is_law q ->
  E (bind (grow_tree (Sibling q below next)) verify) f =
  \sum_x q x * E (grow_tree (below x)) (fun hung => E (grow_tree (next x)) (fun others => E (verify (Child q x hung others)) f)).
Proof.
move=> q_law; rewrite E_bind [grow_tree _]/= E_draw //; apply: eq_bigr => x _; congr (_ * _).
by rewrite E_bind; apply: E_ext => hung; rewrite E_bind.
Qed.

(* What depends on one of two independent things does not see the other. *)
Lemma E_first A B (m : prog R V A) (m' : prog R V B) f : proper m' -> E m (fun a => E m' (fun=> f a)) = E m f.
Proof. by move=> pm'; apply: E_ext => a; rewrite E_const. Qed.

Lemma E_apart A B (m : prog R V A) (m' : prog R V B) r r' f f' : proper m -> proper m' ->
  E m (fun a => E m' (fun b => r * f a + r' * f' b)) = r * E m f + r' * E m' f'.
Proof.
move=> pm pm'; rewrite -E_scale -[r' * _](E_const _ pm) -E_add; apply: E_ext => a.
by rewrite E_add E_const // E_scale.
Qed.

Variable p : seq V -> V -> R.
Hypothesis p_law : forall c, is_law (p c).

Lemma exact_from c (round : prog R V (verdict V)) : proper round ->
  (forall n f, E round (fun v => E (go_on p n.+1 c (emitted v)) f) = \sum_x p c x * after p n c f x) -> exact p c round.
Proof. by move=> pr step; case=> [|n] f; [apply: E_const | rewrite step E_plain]. Qed.

End Trees.

Arguments Leaf {R V}.
Arguments Bare {R V}.
