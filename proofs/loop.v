(* The whole loop: rounds chained, tokens committed one by one through the one stopping routine, until the text ends. *)
From mathcomp Require Import all_ssreflect all_algebra.
From draftproof Require Import chance law decoding token block tree matching rrs greedy_k k_seq traversal.
Import GRing.Theory Num.Theory Order.Theory.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Local Open Scope ring_scope.

Section Loop.
Variables (R : realFieldType) (V : vocabulary).
Variable p : seq V -> V -> R.
Hypothesis p_law : forall c, is_law (p c).

(* Whether a text ends with its last token: end tokens, stop strings, least lengths, anything that the text alone decides. *)
Variable ends : seq V -> bool.

(* Plain decoding: at most `limit` more tokens. *)
Fixpoint plain_text (limit : nat) (c : seq V) : prog R V (seq V) :=
  if limit is l.+1 then Draw (p c) (fun x => if ends (rcons c x) then Ret (rcons c x) else plain_text l (rcons c x))
  else Ret c.

(* Tokens committed one at a time: the text, and how many more may come; 0 when it has ended. *)
Fixpoint commit (limit : nat) (c ts : seq V) : seq V * nat :=
  match ts, limit with
  | x :: ts', l.+1 => if ends (rcons c x) then (rcons c x, 0%N) else commit l (rcons c x) ts'
  | _, _ => (c, limit)
  end.

(* A round may depend on the text, on what may still come, and on a state that it leaves changed in any way: a cache, a store, a
   controller of draft lengths that has seen every draft and every coin. *)
Variable S : Type.
Variable round : S -> seq V -> nat -> prog R V (S * verdict V).

Fixpoint loop (fuel : nat) (s : S) (c : seq V) (limit : nat) : prog R V (seq V) :=
  match fuel, limit with
  | f.+1, _.+1 => bind (round s c limit) (fun after =>
      let: (c', limit') := commit limit c (emitted after.2) in loop f after.1 c' limit')
  | _, _ => Ret c
  end.

Hypothesis round_exact : forall s c limit n f,
  E (round s c limit) (fun after => E (go_on p n c (emitted after.2)) f) = E (plain p n c) f.

(* A text that goes on behind its end, cut where it ends. *)
Fixpoint cut (c ts : seq V) : seq V :=
  if ts is x :: ts' then if ends (rcons c x) then rcons c x else cut (rcons c x) ts' else c.

Lemma go_on_extends n c ts : always (fun text => exists us, text = c ++ us) (go_on p n c ts).
Proof.
have plain_extends m d : always (fun text => exists us, text = d ++ us) (plain p m d).
  elim: m d => [|m IH] d /=; first by exists [::]; rewrite cats0.
  move=> x; elim: (plain p m _) (IH (rcons d x)) => [a|w k IHk|a k IHk] /=; try by auto.
  by case=> us ->; exists (x :: us); rewrite cat_rcons.
elim: n c ts => [|n IH] c [|x ts]; [exact: (plain_extends 0%N) | exact: (plain_extends 0%N) | exact: plain_extends | ].
rewrite /=; elim: (go_on p n _ _) (IH (rcons c x) ts) => [a|w k IHk|a k IHk] /=; try by auto.
by case=> us ->; exists (x :: us); rewrite cat_rcons.
Qed.

Lemma cut_later c x f us : f (cut c (drop (size c) (rcons c x ++ us))) =
  if ends (rcons c x) then f (rcons c x) else f (cut (rcons c x) (drop (size (rcons c x)) (rcons c x ++ us))) :> R.
Proof. by rewrite {1}cat_rcons !drop_size_cat //=; case: ifP. Qed.

Lemma go_on_cut n c ts f : E (go_on p n c ts) (fun text => f (cut c (drop (size c) text))) =
  E (plain_text (commit n c ts).2 (commit n c ts).1) f.
Proof.
have step m d x us : E (go_on p m (rcons d x) us) (fun text => f (cut d (drop (size d) text))) =
    if ends (rcons d x) then f (rcons d x)
    else E (go_on p m (rcons d x) us) (fun text => f (cut (rcons d x) (drop (size (rcons d x)) text))).
  case: ifP => stop; last by apply: (E_ext_always (go_on_extends _ _ _)) => _ [vs ->]; rewrite cut_later stop.
  rewrite -[RHS](E_const _ (proper_go_on p_law m (rcons d x) us)).
  by apply: (E_ext_always (go_on_extends _ _ _)) => _ [vs ->]; rewrite cut_later stop.
elim: n c ts => [|n IH] c ts; first by case: ts => [|x ts] /=; rewrite drop_size.
case: ts => [|x ts] /=; last by rewrite step; case: ifP.
congr (_ / _); apply: eq_mass => x; rewrite -(go_on_nil p) step; case: ifP => _ //; by rewrite IH; case: n {IH}.
Qed.

Lemma commit_less limit c v : ((commit limit.+1 c (emitted v)).2 <= limit)%N.
Proof.
have at_most l d ts : ((commit l d ts).2 <= l)%N.
  elim: ts l d => [|x ts IH] [|l] d //=; case: ifP => // _; exact: leq_trans (IH l _) (leqnSn l).
by case: v => [[|x ts] y] /=; case: ifP.
Qed.

(* Rounds chained with cuts keep the law of the text as plain decoding has it. *)
Theorem loop_exact fuel s c limit : (limit <= fuel)%N -> forall f, E (loop fuel s c limit) f = E (plain_text limit c) f.
Proof.
elim: fuel s c limit => [|fuel IH] s c [|limit] // le_limit f.
transitivity (E (round s c limit.+1) (fun after => E (go_on p limit.+1 c (emitted after.2)) (fun text => f (cut c (drop (size c) text))))).
  rewrite [LHS]E_bind; apply: E_ext => after; rewrite go_on_cut.
  case eq_commit : (commit _ _ _) => [c' limit'] /=; apply: IH.
  have := commit_less limit c after.2; rewrite eq_commit => /leq_trans; apply; exact: le_limit.
by rewrite round_exact -(go_on_nil p) go_on_cut.
Qed.

End Loop.

(* The loop of every rule: what is drafted may depend on the state, the text and the limit; the state sees everything. *)
Section Loops.
Variables (R : realFieldType) (V : vocabulary).
Variable p : seq V -> V -> R.
Hypothesis p_law : forall c, is_law (p c).
Variables (ends : seq V -> bool) (S Drafter Draft : Type).
Variable drafter : S -> seq V -> nat -> Drafter.
Variable observe : S -> Draft -> verdict V -> S.

Section OneRule.
Variables (grow : Drafter -> prog R V Draft) (rule : seq V -> Draft -> prog R V (verdict V)).

Definition round_of (s : S) (c : seq V) (limit : nat) : prog R V (S * verdict V) :=
  bind (grow (drafter s c limit)) (fun drafted => bind (rule c drafted) (fun v => Ret (observe s drafted v, v))).

Lemma loop_of : (forall s c limit, exact p c (bind (grow (drafter s c limit)) (rule c))) ->
  forall s c limit f, E (loop ends round_of limit s c limit) f = E (plain_text p ends limit c) f.
Proof.
move=> rule_exact s c limit f; apply: loop_exact => // s' c' limit' n g.
rewrite -(rule_exact s' c' limit' n g) /round_of !E_bind; apply: E_ext => drafted.
by rewrite E_bind; apply: E_ext.
Qed.

End OneRule.
End Loops.

Section Rules.
Variables (R : realFieldType) (V : vocabulary).
Variable p : seq V -> V -> R.
Hypothesis p_law : forall c, is_law (p c).
Variables (ends : seq V -> bool) (S : Type).

Section Chains.
Variable drafter_of : S -> seq V -> nat -> drafter R V.
Hypothesis drafter_lawful : forall s c limit, lawful (drafter_of s c limit).
Variable observe : S -> draft R V -> verdict V -> S.

Theorem token_loop s c limit f :
  E (loop ends (round_of drafter_of observe (@grow R V) (token_rule p)) limit s c limit) f = E (plain_text p ends limit c) f.
Proof. by apply: loop_of => // s' c' l; apply: token_exact. Qed.

Theorem block_loop s c limit f :
  E (loop ends (round_of drafter_of observe (@grow R V) (block_rule p)) limit s c limit) f = E (plain_text p ends limit c) f.
Proof. by apply: loop_of => // s' c' l; apply: block_exact. Qed.
End Chains.

Section Trees.
Variable brancher_of : S -> seq V -> nat -> brancher R V.
Hypothesis brancher_honest : forall s c limit, honest (brancher_of s c limit).
Variable observe : S -> tree R V -> verdict V -> S.

Theorem rrs_loop s c limit f :
  E (loop ends (round_of brancher_of observe (@grow_tree R V) (rrs_rule p)) limit s c limit) f = E (plain_text p ends limit c) f.
Proof. by apply: loop_of => // s' c' l; apply: rrs_exact. Qed.

Theorem greedy_k_loop s c limit f :
  E (loop ends (round_of brancher_of observe (@grow_tree R V) (greedy_k_rule p)) limit s c limit) f =
  E (plain_text p ends limit c) f.
Proof. by apply: loop_of => // s' c' l; apply: greedy_k_exact. Qed.

Theorem traversal_loop s c limit f :
  E (loop ends (round_of brancher_of observe (@grow_tree R V) (traversal_rule p)) limit s c limit) f =
  E (plain_text p ends limit c) f.
Proof. by apply: loop_of => // s' c' l; apply: traversal_exact. Qed.

Theorem match_loop s c limit f :
  E (loop ends (round_of brancher_of observe (@grow_tree R V) (match_rule p)) limit s c limit) f = E (plain_text p ends limit c) f.
Proof.
by apply: loop_of => // s' c' l; apply: match_any_draft => //; apply: proper_grow_tree.
Qed.

Variable factor : (V -> R) -> (V -> R) -> nat -> R.
Hypothesis factor_fits : forall target drafted k, is_law target -> is_law drafted ->
  0 < factor target drafted k.+1 /\ fits (factor target drafted k.+1) k.+1 target drafted.
Hypothesis siblings_alike : forall s c limit, exists q k, same_law (brancher_of s c limit) q k.

Theorem k_seq_loop s c limit f :
  E (loop ends (round_of brancher_of observe (@grow_tree R V) (k_seq_rule p factor)) limit s c limit) f =
  E (plain_text p ends limit c) f.
Proof.
apply: loop_of => // s' c' l; have [q [k same]] := siblings_alike s' c' l.
exact: (k_seq_exact p_law factor_fits c' same).
Qed.
End Trees.
End Rules.
