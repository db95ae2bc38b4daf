"""vqueue's back office: what runs on the machines that fetch images and run the model."""
