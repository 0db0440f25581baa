# requires: khmersm==1.4.2
from khmersm import segment

result = segment("ខ្ញុំស្រលាញ់កម្ពុជា i love Cambodia")
