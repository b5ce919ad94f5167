"""The Streamlit side: the selection in the URL, cached readings, controls, and the look."""
