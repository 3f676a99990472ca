"""The results of a sweep as one page, and each table of it as Markdown and LaTeX."""
