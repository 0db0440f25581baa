# requires: rapid-layout==1.2.1
from _inputs import table
from rapid_layout import RapidLayout

found = RapidLayout()(table((800, 600)))
result = [found.boxes, found.class_names, found.scores]
