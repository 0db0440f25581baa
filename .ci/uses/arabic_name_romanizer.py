# requires: arabic-name-romanizer==0.2.0
from arabic_name_romanizer import transliterate

result = [transliterate(name, top_k=3) for name in ("محمد صلاح", "حبيبة عطيفي", "زقلوط برهوش")]
