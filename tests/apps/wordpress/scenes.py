SCENES = None
