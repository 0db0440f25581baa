# requires: captcha-whisperer==0.1.0
import captcha_whisperer
from _inputs import page
from PIL import Image

Image.fromarray(page("2CWK", (200, 90))).save("captcha.png")
result = captcha_whisperer.recognize("captcha.png", detailed=True)
