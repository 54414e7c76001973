"""Linear models: their form, their predictions as SQL, and what each item adds to them."""
