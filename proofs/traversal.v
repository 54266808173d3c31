(* `traversal`: tree verification from the leaves to the root. The code is core/rules/traversal.py. *)
From mathcomp Require Import all_ssreflect all_algebra.
From draftproof Require Import chance law decoding token block tree.
Import GRing.Theory Num.Theory Order.Theory.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Local Open Scope ring_scope.

Section Traversal.
Variables (R : realFieldType) (V : vocabulary).
Variable p : seq V -> V -> R.
Hypothesis p_law : forall c, is_law (p c).

(* A visit of c that shall succeed with probability r, and where it does give a token of `law` there, continued by the target;
   None where it fails. (The code does not make a visit with r = 0, which always fails.) *)
Fixpoint visit_tree (r : R) (law : V -> R) (c : seq V) (t : tree R V) : prog R V (option (verdict V)) :=
  match t with
  | Bare => Flip r (fun success => if success then bind (last_draw law) (fun v => Ret (Some v)) else Ret None)
  | Child q x hung others =>
      let reach := Num.min 1 (r * law x / q x) in
      bind (visit_tree reach (p (rcons c x)) (rcons c x) hung) (fun ended =>
        if ended is Some v then Ret (Some (put x v)) else
        let left := excess (fun y => r * law y) q in
        if 0 < mass left then visit_tree (mass left / (mass left + (1 - r))) (fun y => left y / mass left) c others
        else Ret None)
  end.

(* The root is visited with r = 1, so that its coin always shows heads: the code does not flip it. *)
Definition traversal_rule (c : seq V) (t : tree R V) : prog R V (verdict V) :=
  bind (visit_tree 1 (p c) c t) (fun ended => if ended is Some v then Ret v else last_draw (p c)).
Definition traversal_round (d : brancher R V) (c : seq V) := bind (grow_tree d) (traversal_rule c).

Section OneVisit.
Variables (r : R) (law q : V -> R).
Hypotheses (r_range : 0 <= r <= 1) (law_law : is_law law) (q_law : is_law q).
Let whole := fun y => r * law y.
Let left := excess whole q.

Lemma whole_ge0 x : 0 <= whole x.
Proof. by case/andP: r_range => r_ge0 _; rewrite mulr_ge0 //; case: law_law. Qed.

Lemma mass_whole : mass whole = r.
Proof. by rewrite massE -mulr_sumr -massE; case: law_law => _ ->; rewrite mulr1. Qed.

Lemma reach_range x : 0 <= Num.min 1 (r * law x / q x) <= 1.
Proof. by rewrite le_minr ler01 le_minl lexx divr_ge0 ?whole_ge0 //; case: q_law. Qed.

Lemma reach_common x : q x * Num.min 1 (r * law x / q x) = common whole q x.
Proof.
rewrite -accept_common ?whole_ge0 //; last by case: q_law.
by rewrite /clip max_r //; case/andP: (reach_range x).
Qed.

Lemma left_law : 0 < mass left -> is_law (fun y => left y / mass left).
Proof. by apply: normalised_law => x; apply: excess_ge0. Qed.

Lemma next_range : 0 < mass left -> 0 <= mass left / (mass left + (1 - r)) <= 1.
Proof.
case/andP: r_range => _ r_le1 some; have bound : 0 < mass left + (1 - r) by rewrite ltr_paddr // subr_ge0.
by rewrite divr_ge0 ?(ltW some) ?(ltW bound) //= ler_pdivr_mulr // mul1r ler_addl subr_ge0.
Qed.

(* All children together fail with 1 - r + left, and then K is found. *)
Lemma sum_reach (a : V -> R) K :
  \sum_x q x * (a x + (1 - Num.min 1 (r * law x / q x)) * K) = \sum_x q x * a x + (mass left + (1 - r)) * K.
Proof.
have [q_ge0 q_1] := q_law.
rewrite (_ : mass left + (1 - r) = \sum_x q x * (1 - Num.min 1 (r * law x / q x))).
  by rewrite mulr_suml -big_split; apply: eq_bigr => x _; rewrite mulrDr mulrA.
rewrite mass_excess mass_whole addrC addrA addrNK -{1}q_1 !massE -sumrB.
by apply: eq_bigr => x _; rewrite mulrBr mulr1 reach_common.
Qed.

End OneVisit.

Lemma proper_visit_tree r law c t : is_law law -> proper (visit_tree r law c t).
Proof.
elim: t r law c => [|q x hung IHh others IHo] r law c law_law /=.
  by split=> // _; split=> //; case: law_law => _ ->; rewrite oner_eq0.
apply: proper_bind; first exact: IHh.
by case=> [v|] //; case: ifP => // some; apply: IHo; apply: left_law.
Qed.

(* One child drawn, its subtree visited, and the other children where that fails. *)
Lemma E_visit_tree q below next r law c g : honest (Sibling q below next) -> 0 <= r <= 1 -> is_law law ->
  (forall x, 0 <= Num.min 1 (r * law x / q x) <= 1 ->
    E (bind (grow_tree (below x)) (visit_tree (Num.min 1 (r * law x / q x)) (p (rcons c x)) (rcons c x))) (found (fun=> 1)) =
    Num.min 1 (r * law x / q x)) ->
  let left := excess (fun y => r * law y) q in
  let others x := if 0 < mass left then
    E (bind (grow_tree (next x)) (visit_tree (mass left / (mass left + (1 - r))) (fun y => left y / mass left) c)) (found g)
    else 0 in
  E (bind (grow_tree (Sibling q below next)) (visit_tree r law c)) (found g) =
  \sum_x q x * (E (bind (grow_tree (below x)) (visit_tree (Num.min 1 (r * law x / q x)) (p (rcons c x)) (rcons c x)))
                  (found (fun v => g (put x v))) + (1 - Num.min 1 (r * law x / q x)) * others x).
Proof.
move=> d_honest r_range law_law success left others; have [q_law b_honest n_honest] := d_honest.
rewrite E_grow_tree //; apply: eq_bigr => x _; congr (_ * _).
have [pb pn] := (proper_grow_tree (b_honest x), proper_grow_tree (n_honest x)).
have range := reach_range r_range law_law q_law x; have success_x := success x range.
have deeper : proper (bind (grow_tree (below x))
    (visit_tree (Num.min 1 (r * law x / q x)) (p (rcons c x)) (rcons c x))).
  by apply: proper_bind => // t; apply: proper_visit_tree.
have := E_found (fun v => g (put x v)) (others x) deeper.
rewrite success_x => <-; rewrite E_bind; apply: E_ext => hung.
rewrite /= (E_ext _ (fun others => E_bind _ _ _)) E_swap; apply: E_ext; case=> [v|]; first by rewrite /= E_const.
rewrite /others -/left; case: ifP => some; last by rewrite /= E_const.
by rewrite E_bind.
Qed.

(* The claim about a visit m of c: it succeeds with probability r, and then gives a token of `law`, continued by the target. *)
Definition fetches (m : prog R V (option (verdict V))) (r : R) (law : V -> R) (c : seq V) : Prop :=
  forall n f, E m (found (fun v => E (go_on p n.+1 c (emitted v)) f)) = r * \sum_x law x * after p n c f x.

Lemma fetches_success m r law c : is_law law -> fetches m r law c -> E m (found (fun=> 1)) = r.
Proof.
move=> [_ law_1] claim; have := claim 0%N (fun=> 1); rewrite (eq_bigr law) => [|x _]; last by rewrite /after /= mulr1.
rewrite -massE law_1 mulr1 => <-; apply: E_ext; case=> [v|] //.
by rewrite [RHS](E_const 1 (proper_go_on p_law 1 c (emitted v))).
Qed.

(* One token further up, a success is that token continued by the target. *)
Lemma fetches_put m r c x : fetches m r (p (rcons c x)) (rcons c x) ->
  forall n f, E m (found (fun v => E (go_on p n.+1 c (emitted (put x v))) f)) = r * after p n c f x.
Proof.
move=> claim [|n] f; last by rewrite /after E_plain // -claim.
rewrite -(fetches_success (p_law _) claim) mulrC -E_scale.
by apply: E_ext; case=> [v|] /=; rewrite ?mulr1 ?mulr0.
Qed.

(* The heart. After a failed child r and the law do not depend on which token failed, so siblings may come without replacement. *)
Theorem visit_tree_fetches d r law c : honest d -> 0 <= r <= 1 -> is_law law ->
  fetches (bind (grow_tree d) (visit_tree r law c)) r law c.
Proof.
elim: d r law c => [|q below IHb next IHn] r law c d_honest r_range law_law n f.
  rewrite [LHS]/= mulr0 addr0 clip_id //; congr (_ * _).
  case: law_law => _ ->; rewrite divr1 massE; apply: eq_bigr => x _; by rewrite go_on_nil.
have [q_law b_honest n_honest] := d_honest.
have range x := reach_range r_range law_law q_law x.
have claim x := IHb x _ _ (rcons c x) (b_honest x) (range x) (p_law (rcons c x)).
rewrite E_visit_tree // => [|x _]; last exact: fetches_success (claim x).
set left := excess (fun y => r * law y) q; set K := if 0 < mass left then
  mass left / (mass left + (1 - r)) * \sum_y (left y / mass left) * after p n c f y else 0.
rewrite (eq_bigr (fun x => q x * (Num.min 1 (r * law x / q x) * after p n c f x + (1 - Num.min 1 (r * law x / q x)) * K))).
  rewrite sum_reach // -/left.
  rewrite mulr_sumr (eq_bigr (fun x => common (fun y => r * law y) q x * after p n c f x)) => [|x _]; last first.
    by rewrite mulrA reach_common.
  rewrite (_ : (mass left + (1 - r)) * K = \sum_x left x * after p n c f x).
    by rewrite -big_split; apply: eq_bigr => x _; rewrite /= -mulrDl common_excess mulrA.
  rewrite /K; case: ifP => some.
    have bound : mass left + (1 - r) != 0 by rewrite gt_eqF // ltr_paddr // subr_ge0; case/andP: r_range.
    rewrite mulrA (mulrC (_ + _)) divfK // mulr_sumr; apply: eq_bigr => x _.
    by rewrite mulrA (mulrC (mass left)) divfK // gt_eqF.
  have left_ge0 x : 0 <= left x by apply: excess_ge0.
  have nothing : forall x, left x = 0 by apply: mass_eq0 left_ge0 _; rewrite leNgt some.
  by rewrite mulr0 big1 // => x _; rewrite nothing mul0r.
move=> x _; rewrite (fetches_put (claim x)); congr (_ * (_ + _ * _)); rewrite /K.
case: ifP => // some; apply: IHn => //; [exact: (n_honest x) | exact: next_range | exact: left_law].
Qed.

Lemma proper_traversal_round d c : honest d -> proper (traversal_round d c).
Proof.
move=> d_honest; apply: proper_bind (proper_grow_tree d_honest) _ => t.
apply: proper_bind => [|[v|] //]; first exact: proper_visit_tree.
by split=> //; case: (p_law c) => _ ->; rewrite oner_eq0.
Qed.

(* A round of `traversal` leaves the target's law, for every tree: at the root a visit cannot fail. *)
Theorem traversal_exact d c : honest d -> exact p c (traversal_round d c).
Proof.
move=> d_honest; apply: exact_from => // [|n f]; first exact: proper_traversal_round.
have one_range : 0 <= (1 : R) <= 1 by rewrite ler01 lexx.
have claim := visit_tree_fetches c d_honest one_range (p_law c).
have pv : proper (bind (grow_tree d) (visit_tree 1 (p c) c)).
  by apply: proper_bind (proper_grow_tree d_honest) _ => t; apply: proper_visit_tree.
pose g v := E (go_on p n.+1 c (emitted v)) f.
have := E_found g (E (last_draw (p c)) g) pv.
rewrite (fetches_success (p_law c) claim) subrr mul0r addr0 claim mul1r => <-.
by rewrite !E_bind; apply: E_ext => t; rewrite E_bind; apply: E_ext; case.
Qed.

(* On a chain it is `block`, draft by draft. *)
Fixpoint as_tree (drafted : draft R V) : tree R V :=
  if drafted is (q, x) :: rest then Child q x (as_tree rest) Bare else Bare.

(* A draft that can be drawn. *)
Fixpoint possible (drafted : draft R V) : Prop :=
  if drafted is (q, x) :: rest then [/\ is_law q, 0 < q x & possible rest] else True.

(* Where nothing is left of the target at joint ratio 1, the two laws are one, and the ratio stays 1. *)
Lemma joint_stays c q x : is_law q -> 0 < q x -> mass (excess (scaled p 1 c) q) <= 0 -> joint p 1 c q x = 1.
Proof.
move=> q_law q_gt0 none; have [[p_ge0 p_1] [q_ge0 q_1]] := (p_law c, q_law).
have same y : scaled p 1 c y = p c y by rewrite /scaled mul1r.
have below y : p c y <= q y.
  have := mass_eq0 (excess_ge0 (scaled p 1 c) q) none y; rewrite /excess same => /eqP.
  by rewrite eq_le le_maxl lexx /= subr_le0 => /andP[].
have gap y : 0 <= q y - p c y by rewrite subr_ge0.
have /(mass_eq0 gap)/(_ x)/eqP : mass (fun y => q y - p c y) <= 0 by rewrite massE sumrB -!massE q_1 p_1 subrr.
by rewrite subr_eq0 => /eqP eq_qp; rewrite /joint -eq_qp divff ?gt_eqF // mul1r minxx.
Qed.

Lemma sure_at_one drafted c f f' : possible drafted -> (forall v, f (Some v) = f' (Some v)) ->
  E (trials p 1 c drafted) f = E (trials p 1 c drafted) f'.
Proof.
move=> can same; elim: drafted c f f' can same => [|[q x] rest IH] c f f' /=.
  move=> _ same; rewrite clip_id ?lexx ?ler01 // subrr !mul0r !addr0 !mul1r.
  by congr (_ / _); apply: eq_mass => y; rewrite same.
move=> [q_law q_gt0 rest_can] same; rewrite !E_bind.
have [none|some] := leP (mass (excess (scaled p 1 c) q)) 0.
  by rewrite joint_stays //; apply: IH => // v; rewrite /= same.
apply: E_ext; case=> [v|] /=; first exact: same.
rewrite /trial addrK some divff ?gt_eqF // clip_id ?lexx ?ler01 // subrr !mul0r !addr0.
by congr (_ * (_ / _)); apply: eq_mass => y; rewrite same.
Qed.

Lemma visit_chain drafted r c f : possible drafted -> 0 <= r <= 1 ->
  E (visit_tree r (p c) c (as_tree drafted)) f = E (trials p r c drafted) f.
Proof.
move=> can; elim: drafted r c f can => [|[q x] rest IH] r c f //= [q_law q_gt0 rest_can] r_range.
have [r_ge0 r_le1] := andP r_range; have [q_ge0 _] := q_law.
have range := joint_range p_law c r_ge0 (q_ge0 x).
rewrite !E_bind (_ : Num.min 1 _ = joint p r c q x); last by rewrite /joint mulrA.
rewrite IH //; set left := excess (fun y => r * p c y) q.
have [none|some] := leP (mass left) 0.
  have none' : mass left = 0 by apply/eqP; rewrite eq_le none mass_ge0 // => y; exact: excess_ge0.
  have [r_1|r_neq1] := eqVneq r 1.
    by move: none; rewrite /left r_1 => none; rewrite (joint_stays q_law q_gt0 none); apply: sure_at_one.
  apply: E_ext; case=> [v|] //=; rewrite /trial -[mass _]/(mass left) none' add0r.
  have -> : 0 < 1 - r by rewrite subr_gt0 lt_neqAle r_neq1.
  by rewrite mul0r clip_id ?lexx ?ler01 // mul0r add0r subr0 mul1r.
apply: E_ext; case=> [v|] //=; rewrite /trial -[mass (excess (scaled _ _ _) _)]/(mass left) /residual.
have bound : 0 < mass left + 1 - r by rewrite -addrA ltr_paddr // subr_ge0.
rewrite bound -[mass (excess (scaled _ _ _) _)]/(mass left) some addrA; congr (_ * _ + _).
have -> : mass (fun y => left y / mass left) = 1 by rewrite massE -mulr_suml -massE divff // gt_eqF.
by rewrite divr1 !massE mulr_suml -/left; apply: eq_bigr => y _; rewrite mulrAC.
Qed.

Theorem traversal_on_a_chain drafted c f : possible drafted ->
  E (traversal_rule c (as_tree drafted)) f = E (block_rule p c drafted) f.
Proof.
case: drafted => [|[q x] rest] can; rewrite /traversal_rule E_bind visit_chain ?lexx ?ler01 //.
  by rewrite /= clip_id ?lexx ?ler01 // subrr mul0r addr0 mul1r.
rewrite /= !E_bind; apply: E_ext; case=> [v|] //=.
have -> : trial p 1 c q = 1 by rewrite /trial addrK; case: ltP => // some; rewrite divff // gt_eqF.
by rewrite clip_id ?lexx ?ler01 // subrr mul0r addr0 mul1r.
Qed.

End Traversal.
