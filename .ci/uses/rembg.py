# requires: rembg, pillow
from _inputs import network, photo
from PIL import Image
from rembg import new_session, remove

session = new_session("u2net_custom", model_path=network("small.onnx", shape=(1, 3, 320, 320)))
result = remove(Image.fromarray(photo()), session=session)
result = [list(result.size), list(result.getextrema()), result.resize((16, 12)).tobytes().hex()]
