"""Review of policies: compare, edit, draft and cover them."""
