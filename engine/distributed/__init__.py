"""Work shared among processes and machines, and files from which interrupted work resumes."""
