"""Makes the CustomResourceDefinitions of crds/ from the model, delayq.contract."""
