"""From noisy counts to estimates. Post-processing: it sees released numbers only, and costs no privacy."""
