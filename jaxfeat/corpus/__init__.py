"""What does the text say that the first gradients of an attention model write into its weights?"""
