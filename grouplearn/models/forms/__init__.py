"""What finished models consist of: a file per form has its tables, rows, checks, SQL, scorer and exports."""
