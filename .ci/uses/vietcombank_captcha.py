# requires: vietcombank-captcha==0.1.0
from _inputs import page
from PIL import Image
from vietcombank_captcha import VietcombankCaptcha

Image.fromarray(page("48213", (200, 90))).save("captcha.png")
result = VietcombankCaptcha().predict_with_confidence("captcha.png")
