(* `block`: the last success wins, the residual is scaled by the joint ratio. The code is core/rules/block.py. *)
From mathcomp Require Import all_ssreflect all_algebra.
From draftproof Require Import chance law decoding token.
Import GRing.Theory Num.Theory Order.Theory.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Local Open Scope ring_scope.

Section Block.
Variables (R : realFieldType) (V : vocabulary).
Variable p : seq V -> V -> R.
Hypothesis p_law : forall c, is_law (p c).
Implicit Types (d : drafter R V) (drafted : draft R V).

(* r times the target's law: what a prefix of joint ratio r has to give to its continuations. *)
Definition scaled (r : R) (c : seq V) : V -> R := fun x => r * p c x.

(* The joint ratio one draft further: min(1, r * target/draft). *)
Definition joint (r : R) (c : seq V) (q : V -> R) (x : V) : R := Num.min 1 (r * (p c x / q x)).

(* The chance of a trial inside the block: S / (S + 1 - r), S the mass of (r * target - draft)+; 1 where that is 0/0. *)
Definition trial (r : R) (c : seq V) (q : V -> R) : R :=
  let s := mass (excess (scaled r c) q) in
  let bound := s + 1 - r in
  if 0 < bound then s / bound else 1.

(* Where the last successful trial is, and the token after it; None where no trial succeeds. A prefix of joint ratio r stands
   at c, with the drafts after it. What lies deeper is tried first, so that the last success wins. *)
Fixpoint trials (r : R) (c : seq V) drafted : prog R V (option (verdict V)) :=
  match drafted with
  | [::] => Flip r (fun success => if success then bind (last_draw (p c)) (fun v => Ret (Some v)) else Ret None)
  | (q, x) :: rest => bind (trials (joint r c q x) (rcons c x) rest) (fun found =>
      if found is Some v then Ret (Some (put x v)) else
      Flip (trial r c q) (fun success =>
        if success then bind (last_draw (residual (scaled r c) q)) (fun v => Ret (Some v)) else Ret None))
  end.

(* At the root there is no trial: no success is a success of length 0. *)
Definition block_rule (c : seq V) drafted : prog R V (verdict V) :=
  match drafted with
  | [::] => last_draw (p c)
  | (q, x) :: rest => bind (trials (joint 1 c q x) (rcons c x) rest) (fun found =>
      if found is Some v then Ret (put x v) else last_draw (residual (scaled 1 c) q))
  end.

Definition block_round d c := bind (grow d) (block_rule c).

Lemma scaled_ge0 r c x : 0 <= r -> 0 <= scaled r c x.
Proof. by move=> r_ge0; rewrite mulr_ge0 //; case: (p_law c). Qed.

Lemma mass_scaled r c : mass (scaled r c) = r.
Proof. by rewrite massE -mulr_sumr -massE; case: (p_law c) => _ ->; rewrite mulr1. Qed.

Lemma joint_ge0 r c q x : 0 <= r -> 0 <= q x -> 0 <= joint r c q x.
Proof. by move=> r_ge0 q_ge0; rewrite /joint le_minr ler01 mulr_ge0 // divr_ge0 //; case: (p_law c). Qed.

Lemma joint_le1 r c q x : joint r c q x <= 1.
Proof. by rewrite /joint le_minl lexx. Qed.

Lemma joint_common r c q x : 0 <= r -> 0 <= q x -> q x * joint r c q x = common (scaled r c) q x.
Proof.
move=> r_ge0 q_ge0; rewrite -accept_common ?scaled_ge0 // /clip /joint /scaled mulrA max_r //.
by rewrite le_minr ler01 divr_ge0 ?scaled_ge0.
Qed.

(* What is expected of a visit that may fail: failures count nothing. *)
Definition found A (f : A -> R) (o : option A) : R := if o is Some a then f a else 0.

(* The mass that is left after the drafts, times the trial that fetches it. *)
Lemma trial_fetches r c q : 0 <= r <= 1 ->
  let s := mass (excess (scaled r c) q) in (1 - r + s) * clip (trial r c q) = s.
Proof.
case/andP=> r_ge0 r_le1 /=; set s := mass _.
have s_ge0 : 0 <= s by apply: mass_ge0 => x; apply: excess_ge0.
have -> : 1 - r + s = s + 1 - r by rewrite addrC addrA.
rewrite /trial -/s; case: ltP => [bound_gt0|bound_le0].
  rewrite clip_id; first by rewrite mulrC divfK ?gt_eqF.
  rewrite divr_ge0 ?(ltW bound_gt0) //= ler_pdivr_mulr // mul1r -addrA ler_addl subr_ge0 //.
have rest_ge0 : 0 <= 1 - r by rewrite subr_ge0.
have -> : s + 1 - r = 0 by apply/eqP; rewrite eq_le bound_le0 -addrA addr_ge0.
rewrite mul0r; apply/eqP; rewrite eq_le s_ge0 (le_trans _ bound_le0) // -addrA ler_addl //.
Qed.

Lemma E_found (m : prog R V (option (verdict V))) g K : proper m ->
  E m (fun o => if o is Some v then g v else K) = E m (found g) + (1 - E m (found (fun=> 1))) * K.
Proof.
move=> m_proper; rewrite -{1}(E_const 1 m_proper) -mulN1r -E_scale -E_add mulrC -E_scale -E_add.
by apply: E_ext; case=> [v|] /=; rewrite mulN1r ?subrr ?oppr0 ?mulr0 ?addr0 // mulr1 add0r.
Qed.

Lemma joint_range r c q x : 0 <= r -> 0 <= q x -> 0 <= joint r c q x <= 1.
Proof. by move=> r_ge0 q_ge0; rewrite joint_ge0 // joint_le1. Qed.

(* A trial that can succeed has something to draw from. *)
Lemma proper_trial r c q : 0 <= r <= 1 -> clip (trial r c q) != 0 -> mass (residual (scaled r c) q) != 0.
Proof.
case/andP=> r_ge0 r_le1; rewrite /residual /trial; case: (ltP 0 (mass (excess _ _))) => [s_gt0 _|s_le0].
  by rewrite gt_eqF.
have s_0 : mass (excess (scaled r c) q) = 0.
  by apply/eqP; rewrite eq_le s_le0 mass_ge0 // => x; apply: excess_ge0.
rewrite mass_scaled s_0; have [-> | //] := eqVneq r 0.
by rewrite add0r subr0 ltr01 mul0r clip_id ?eqxx // lexx ler01.
Qed.

Definition visit (r : R) d c := bind (grow d) (trials r c).

Lemma proper_trials r c drafted : recorded drafted -> 0 <= r <= 1 -> proper (trials r c drafted).
Proof.
elim: drafted r c => [|[q x] rest IH] r c /=.
  by move=> _ _; split=> // _; split=> //; case: (p_law c) => _ ->; rewrite oner_eq0.
move=> [q_law rest_recorded] r_range; have [r_ge0 _] := andP r_range.
apply: proper_bind; first by apply: IH => //; apply: joint_range => //; case: q_law.
by case=> [v|] //=; split=> // success; split=> //; apply: proper_trial success.
Qed.

Lemma proper_visit d r c : lawful d -> 0 <= r <= 1 -> proper (visit r d c).
Proof.
move=> d_law r_range; apply: (proper_bind_always (proper_grow d_law) (recorded_grow d_law)) => drafted recorded.
exact: proper_trials.
Qed.

Lemma sum_joint r c q a K : is_law q -> 0 <= r ->
  \sum_x q x * (a x + (1 - joint r c q x) * K) =
  \sum_x q x * a x + (1 - r + mass (excess (scaled r c) q)) * K.
Proof.
move=> [q_ge0 q_1] r_ge0; rewrite mass_excess mass_scaled addrA addrNK (_ : 1 - _ = \sum_x q x * (1 - joint r c q x)).
  by rewrite mulr_suml -big_split; apply: eq_bigr => x _; rewrite mulrDr mulrA.
rewrite -{1}q_1 !massE -sumrB; apply: eq_bigr => x _; by rewrite mulrBr mulr1 joint_common.
Qed.

(* One draft, then what is deeper; where that fails, this prefix's own trial, and the residual. *)
Lemma E_visit q below r c g : lawful (Next q below) -> 0 <= r <= 1 ->
  (forall x, E (visit (joint r c q x) (below x) (rcons c x)) (found (fun=> 1)) = joint r c q x) ->
  E (visit r (Next q below) c) (found g) =
  \sum_x q x * E (visit (joint r c q x) (below x) (rcons c x)) (found (fun v => g (put x v))) +
  mass (excess (scaled r c) q) * E (last_draw (residual (scaled r c) q)) g.
Proof.
move=> [q_law below_law] r_range success; have [r_ge0 _] := andP r_range.
rewrite -(trial_fetches c q r_range) -mulrA -sum_joint // /visit E_grow //; apply: eq_bigr => x _; congr (_ * _).
have deeper : proper (visit (joint r c q x) (below x) (rcons c x)).
  by apply: (proper_visit _ (below_law x)); apply: joint_range => //; case: q_law.
have := E_found (fun v => g (put x v)) (clip (trial r c q) * E (last_draw (residual (scaled r c) q)) g) deeper.
rewrite success => <-; rewrite !E_bind; apply: E_ext => rest; rewrite E_bind; apply: E_ext; case=> [v|] //=.
by rewrite mulr0 addr0.
Qed.

Lemma visit_success d r c : lawful d -> 0 <= r <= 1 -> E (visit r d c) (found (fun=> 1)) = r.
Proof.
elim: d r c => [|q below IH] r c d_law r_range.
  by rewrite /= mulr0 addr0 clip_id // (eq_mass (w' := p c)) => [|x]; rewrite ?mulr1 //; case: (p_law c) => _ ->; rewrite divr1 mulr1.
have [[r_ge0 _] [q_law below_law]] := (andP r_range, d_law).
have success x : E (visit (joint r c q x) (below x) (rcons c x)) (found (fun=> 1)) = joint r c q x.
  by apply: (IH _ _ _ (below_law x)); apply: joint_range => //; case: q_law.
rewrite E_visit // (eq_bigr (fun x => common (scaled r c) q x)) => [|x _].
  rewrite -massE [E _ _]/= (residual_gives (scaled r c) q (fun=> 1)).
  rewrite massE -big_split -[RHS](mass_scaled r c) massE; apply: eq_bigr => x _.
  by rewrite /= mulr1 -(common_excess (scaled r c) q x).
by rewrite success joint_common //; case: q_law.
Qed.

(* The heart: a prefix of joint ratio r ends up inside the round with probability r, and then what follows it has the target's
   law. *)
Theorem visit_exact d r c : lawful d -> 0 <= r <= 1 ->
  forall n f, E (visit r d c) (found (fun v => E (go_on p n c (emitted v)) f)) = r * E (plain p n c) f.
Proof.
move=> d_law r_range n f; case: n => [|n].
  rewrite -{2}(visit_success c d_law r_range) mulrC -E_scale.
  by apply: E_ext; case=> [v|] /=; rewrite ?mulr1 ?mulr0.
elim: d n r c f d_law r_range => [|q below IH] n r c f d_law r_range.
  rewrite [LHS]/= mulr0 addr0 clip_id //; congr (_ * _).
  exact: (exact_last_draw p_law c n.+1 f).
have [[r_ge0 _] [q_law below_law]] := (andP r_range, d_law).
have range x : 0 <= joint r c q x <= 1 by apply: joint_range => //; case: q_law.
rewrite E_visit // => [|x]; last exact: (visit_success _ (below_law x) (range x)).
rewrite E_last_draw residual_gives (E_plain p_law) mulr_sumr.
rewrite (eq_bigr (fun x => common (scaled r c) q x * after p n c f x)) => [|x _].
  by rewrite -big_split; apply: eq_bigr => x _; rewrite /= -mulrDl common_excess mulrA.
rewrite -joint_common ?mulrA //; last by case: q_law.
rewrite -mulrA; congr (_ * _); case: n => [|n]; last exact: (IH x n _ _ f (below_law x) (range x)).
rewrite -{2}(visit_success (rcons c x) (below_law x) (range x)) mulrC -E_scale.
by apply: E_ext; case=> [v|] /=; rewrite ?mulr1 ?mulr0.
Qed.

Lemma range01 : 0 <= (1 : R) <= 1.
Proof. by rewrite ler01 lexx. Qed.

Lemma proper_block_round d c : lawful d -> proper (block_round d c).
Proof.
move=> d_law; apply: (proper_bind_always (proper_grow d_law) (recorded_grow d_law)).
case=> [|[q x] rest] /=; first by split=> //; case: (p_law c) => _ ->; rewrite oner_eq0.
move=> [q_law rest_recorded]; apply: proper_bind.
  by apply: proper_trials => //; apply: joint_range => //; [exact: ler01 | case: q_law].
case=> [v|] //=; split=> //; rewrite /residual; case: ifP => [/gt_eqF->//|_].
by rewrite mass_scaled oner_eq0.
Qed.

(* The root is a visit that cannot fail. *)
Lemma E_block_round q below c g : lawful (Next q below) ->
  E (block_round (Next q below) c) g = E (visit 1 (Next q below) c) (found g).
Proof.
move=> d_law; have [q_law below_law] := d_law.
have range x : 0 <= joint 1 c q x <= 1 by apply: joint_range; [exact: ler01 | case: q_law].
have success x := visit_success (rcons c x) (below_law x) (range x).
rewrite E_visit ?range01 // /block_round E_grow //.
rewrite (_ : mass _ = 1 - 1 + mass (excess (scaled 1 c) q)); last by rewrite subrr add0r.
rewrite -sum_joint ?ler01 //; apply: eq_bigr => x _; congr (_ * _).
have deeper : proper (visit (joint 1 c q x) (below x) (rcons c x)) by exact: (proper_visit _ (below_law x) (range x)).
have := E_found (fun v => g (put x v)) (E (last_draw (residual (scaled 1 c) q)) g) deeper.
by rewrite success => <-; rewrite !E_bind; apply: E_ext => rest; rewrite E_bind; apply: E_ext; case.
Qed.

(* A round of `block` leaves the target's law, whatever drafts. *)
Theorem block_exact d c : lawful d -> exact p c (block_round d c).
Proof.
case: d => [|q below] d_law n f; first exact: (exact_last_draw p_law).
by rewrite E_block_round // visit_exact ?range01 // mul1r.
Qed.

(* The weight of a drafted path: the chance that it is drafted times its joint ratio (w_i of the paper). *)
Fixpoint kept_along (r : R) d (c t : seq V) {struct t} : R :=
  match t, d with
  | [::], _ => r
  | x :: t', Next q below => q x * kept_along (joint r c q x) (below x) (rcons c x) t'
  | _ :: _, Stop => 0
  end.

Lemma visit_path d r c t : lawful d -> 0 <= r <= 1 ->
  E (visit r d c) (found (fun v => (prefix t v.1)%:R)) = kept_along r d c t.
Proof.
elim: t d r c => [|x t IH] d r c d_law r_range.
  rewrite -[RHS](visit_success c d_law r_range).
  by apply: E_ext; case=> [v|] //=; rewrite prefix0s.
case: d d_law => [|q below] d_law; first by rewrite /= massE big1 ?mul0r ?mulr0 ?addr0 // => y _; rewrite mulr0.
have [[r_ge0 _] [q_law below_law]] := (andP r_range, d_law).
have range y : 0 <= joint r c q y <= 1 by apply: joint_range => //; case: q_law.
rewrite E_visit // => [|y]; last exact: (visit_success _ (below_law y) (range y)).
rewrite (_ : E (last_draw _) _ = 0) ?mulr0 ?addr0; last by rewrite /= massE big1 ?mul0r // => y _; rewrite mulr0.
rewrite (bigD1 x) //= big1 ?addr0 => [|y neq_yx].
  congr (_ * _); rewrite -(IH _ _ _ (below_law x) (range x)); apply: E_ext; case=> [v|] //=; by rewrite eqxx.
rewrite (_ : E _ _ = 0) ?mulr0 // -[RHS](E_const 0 (proper_visit (rcons c y) (below_law y) (range y))).
by apply: E_ext; case=> [v|] //=; rewrite eq_sym (negbTE neq_yx).
Qed.

(* P(the first drafts are t and they are kept) = w(t). Summed over t of length i: P(tau >= i). *)
Theorem block_path d c t : lawful d -> Pr (block_round d c) (fun v => prefix t v.1) = kept_along 1 d c t.
Proof.
move=> d_law; case: t => [|x t].
  by rewrite /Pr -[RHS](E_const 1 (proper_block_round c d_law)); apply: E_ext => v; rewrite prefix0s.
case: d d_law => [|q below] d_law; last by rewrite /Pr E_block_round // visit_path ?range01.
by rewrite /Pr /= massE big1 ?mul0r // => y _; rewrite mulr0.
Qed.

Corollary block_accepts i d c : lawful d ->
  Pr (block_round d c) (fun v => i <= size v.1)%N = \sum_(t : i.-tuple V) kept_along 1 d c t.
Proof. by move=> d_law; rewrite accepted_as_paths; apply: eq_bigr => t _; apply: block_path. Qed.

Lemma short_trials k r c drafted : (size drafted <= k)%N ->
  always (fun o => if o is Some v then size v.1 <= k else true)%N (trials r c drafted).
Proof.
elim: drafted k r c => [|[q x] rest IH] k r c; first by move=> _ [] //= y.
case: k => [//|k] le_k /=.
by apply: (always_bind (IH k (joint r c q x) (rcons c x) le_k)); case=> [v|] //= _; case.
Qed.

Lemma short_block_round k d c : at_most k d -> always (fun v => size v.1 <= k)%N (block_round d c).
Proof.
move=> short; apply: (always_bind (short_grow short)); case=> [|[q x] rest] //=.
case: k {short} => [|k] // le_k; apply: (always_bind (short_trials (joint 1 c q x) (rcons c x) le_k)).
by case=> [v|].
Qed.

Theorem block_expected k d c : lawful d -> at_most k d ->
  expected_tokens (block_round d c) = 1 + \sum_(1 <= i < k.+1) \sum_(t : i.-tuple V) kept_along 1 d c t.
Proof.
move=> d_law short; rewrite (expected_tokens_as_paths (k := k)); [|exact: proper_block_round|exact: short_block_round].
by congr (_ + _); apply: eq_bigr => i _; apply: eq_bigr => t _; apply: block_path.
Qed.

(* Path by path, `block` keeps at least what `token` keeps. *)
Lemma overlap_le_kept d c t Q T r : lawful d -> 0 <= r -> 0 <= T -> T <= Q -> T <= Q * r ->
  T * overlap_along p d c t <= Q * kept_along r d c t.
Proof.
elim: t d c Q T r => [|x t IH] [|q below] c Q T r d_law r_ge0 T_ge0 TQ TQr; rewrite /= ?mulr1 ?mulr0 //.
have [q_law below_law] := d_law; have [q_ge0 _] := q_law; have Q_ge0 := le_trans T_ge0 TQ.
rewrite !mulrA; apply: (IH _ _ _ _ _ (below_law x)).
- by apply: joint_ge0.
- by apply: mulr_ge0 => //; apply: common_ge0 => //; case: (p_law c).
- by apply: ler_pmul => //; [apply: common_ge0 => //; case: (p_law c) | rewrite /common le_minl lexx orbT].
rewrite -mulrA joint_common // /common /scaled minr_pmulr // minr_pmulr // le_minr !le_minl.
rewrite mulrA ler_wpmul2r ?ler_wpmul2r ?orbT //; by case: (p_law c).
Qed.

Theorem block_at_least_token k d c : lawful d -> at_most k d ->
  expected_tokens (token_round p d c) <= expected_tokens (block_round d c).
Proof.
move=> d_law short; rewrite (token_expected p_law c d_law short) (block_expected c d_law short).
rewrite ler_add2l; apply: ler_sum => i _; apply: ler_sum => t _.
by have := overlap_le_kept c t d_law ler01 ler01 (lexx 1); rewrite !mul1r; apply.
Qed.

End Block.
