"""A drawn example image, the same on every machine: shapes on grass under a sky."""

from __future__ import annotations

from PIL import Image, ImageDraw

SIZE = (480, 320)
SKY, GRASS, SUN, WALL = (196, 222, 242), (112, 158, 84), (246, 200, 72), (222, 214, 200)
ROOF, DOOR, TRUNK, LEAVES = (176, 66, 48), (92, 62, 44), (110, 80, 52), (52, 112, 62)


def example_image() -> Image.Image:
    """A house with a red roof, a tree, the sun and three blue balls, RGB."""
    image = Image.new("RGB", SIZE, SKY)
    draw = ImageDraw.Draw(image)
    draw.rectangle((0, 220, 480, 320), fill=GRASS)
    draw.ellipse((386, 22, 446, 82), fill=SUN)
    draw.rectangle((120, 130, 260, 250), fill=WALL)
    draw.polygon(((104, 132), (190, 62), (276, 132)), fill=ROOF)
    draw.rectangle((174, 186, 206, 250), fill=DOOR)
    draw.rectangle((340, 170, 358, 252), fill=TRUNK)
    draw.ellipse((302, 92, 396, 186), fill=LEAVES)
    for x in (60, 300, 420):
        draw.ellipse((x, 266, x + 34, 300), fill=(44, 92, 176))
    return image
