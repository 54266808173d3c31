(* What is proven, and that nothing is assumed for it but what each statement says: the build reads this file's output. *)
From draftproof Require Import chance law decoding token block tree matching rrs greedy_k k_seq traversal loop rational run.

(* One position. *)
Print Assumptions one_position.
Print Assumptions one_position_law.
Print Assumptions guessed_excess.
Print Assumptions overlap_one_hot.

(* Chains. *)
Print Assumptions token_exact.
Print Assumptions token_path.
Print Assumptions token_expected.
Print Assumptions overlap_along_model.
Print Assumptions token_expected_alpha.
Print Assumptions block_exact.
Print Assumptions block_path.
Print Assumptions block_accepts.
Print Assumptions block_expected.
Print Assumptions block_at_least_token.

(* Trees. *)
Print Assumptions match_any_draft.
Print Assumptions rrs_exact.
Print Assumptions rrs_without_replacement.
Print Assumptions greedy_k_exact.
Print Assumptions honest_top_and_one.
Print Assumptions k_seq_exact.
Print Assumptions division_factor_fits.
Print Assumptions traversal_exact.
Print Assumptions traversal_on_a_chain.

(* The whole loop. *)
Print Assumptions loop_exact.
Print Assumptions match_loop.
Print Assumptions token_loop.
Print Assumptions block_loop.
Print Assumptions rrs_loop.
Print Assumptions greedy_k_loop.
Print Assumptions k_seq_loop.
Print Assumptions traversal_loop.

(* What is run is what is proven. *)
Print Assumptions outcomes_E.
Print Assumptions Qc_realFieldType.
