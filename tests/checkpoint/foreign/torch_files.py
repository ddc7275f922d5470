"""Files that torch 2.13.0 and torchrec 1.8.0 wrote."""

import base64
import zlib

# torch.save(EmbeddingBagCollection(t1 [4, 4], t2 [5, 4]).state_dict()), weights as below.
TORCHREC = (
    "eNqdletr01AYxk/vbTbnnO7mZdNvFWdNurbrZI1SpQgRrPNCUSFLm9hGs3YnOZ0XrCiioB/EGzJFRURl6B8gXha8"
    "oojg7ZuKIAriFxXBCypiTjJr2nVTdiAc2vM+z/nlPe97EmdsdgDcbjBiVIFGgOR5PIc4X99GKRadDNaMHDusqVRO"
    "koQUEnNZhVgm84Is8IvFFCIgmN0NLd5Ek2Ym9CYFnhezaTbJpRUfonybBDGdQdCaQjk5lfGxeSRKCsHKQjIvSjyL"
    "hKySk9l+PwFtXm/CpXkoWiSXFqDdkBAxKcehFcafBHQkLFoMCZ0Jmzan+vLQxdQi6F7OAMbO2PdAjzZZ9kBibwZz"
    "VSFY3Q0nVITz/4GryWh7Z+wZw5uCEzMuZgqCtdjTgT0nGZ51hudkBKd0w/p8ATYkPJqA7RUQh/MHG/X1Jm8CJxY2"
    "F+BU/Y36BVnR0ganMRYlUTOCBE4vwBkZfXFSpRzClgJsHX3dD2cW4Cx9Pa8kfXHG5b6+60vPBe1d8BMf9eTrQAM+"
    "ed/6nNzLIXaYMhatq1AAFLa99OHFLpwh/IxuWw+6dNvhc2Q5SUxne4UsikXDlUrrv0YogAEWbILvrNoW1jEBqoEd"
    "AyS3ICGH6zQWBUASEZIE7LE78rrZqUU5x/TwgEV/umIeGYsuGDf48HhwLqyeHbitXtt2nF76/hbtfnxgqPZZW+TE"
    "4AN1+5yfdM+xkMpP9NPrBgfo1fuP0Kf3bxja/MOnLhGgOjBI0Zj8w41XPQs1toX/IPcUyalY1GGQH2r7NRR/lb9a"
    "c/FOpPXwUXraryq1/+NLus93T3268ib95tuZyNeu7er3y46ugOu++nBJK/385Xn1RefnCL30IN14l59/peVk5C3x"
    "JfJp7/MhzLPvyplLccwyJg8BwpinWF2BcaWyncA7Pj6VXvXv828GHXoB6ilQBFnUKnArhy8uVuRj0fbxAJDBEEWR"
    "4aC/PUR1hjrIoL8zQJGkP0yGwuFgRyBI+qn2jk69Sn/ubHrj1Ti8OqUFwxY5zZ1ZNYLcdA+XC829V1ci+m4BFdq4"
    "XG9unfoS/XIrqNyv5RbmzqkusXhiWBQ7rlxprlxPibLBBv72WbnMXGClskcmGVUuM1cJUSLrsQNTLZbrzOfWXPp+"
    "hq5yRcUZp7NtOLDFNrcocpfNry3GvNlhzJoOfxzAWpfx27hVHU5D49bjjdjffX7W0g=="
)
# torch.save({'model': state_dict of EmbeddingBag 'movies' [3, 2] and Linear 'dense' [1, 2] with a
# bias, 'epoch': 3, 'lr': 0.1, 'h': bfloat16 zeros [4, 2], 'np': a Parameter of ones [3, 2]}).
NESTED = (
    "eNqlVlts21QYdm5O6q6XbVDaQcttAxfa1M6lSWhDhgVGyA9kQUPWhBTcxNQWbpLfPuk0pEiTYGMgIfHAkOCBiWd4"
    "A3ER0johVeK1CIkH4AkeQEKqxAOCN86xG8/HW5rSHclxfPJ///ed/+ZUlVicYVIp5pY1wRxnWrqD9OZSU0NauvOq"
    "JUsTzDl6XYz2gOHVBAZstJu6BZFGo21ZegOZ7ZbDPW83dVtvPm02EAfR+RrEeHXMtd00dSd9XjfXDQTxBmrbDSNd"
    "7yLTcri6ra91TatZR3rLadv1zQwHCZ5XkxjoYEttXQfWg3Cy1dbQC94mB0k1gm0ESKkxfG90ujCisAi4MwqjxJTo"
    "ZRhVokrkMhx5yyBixhCM12BCPYKNm5hL7wuaNDCfwRqePxGOGiNKFMEx4idC/Bz3/Nzl+bkbwVQN7lE538+aqTkw"
    "TXnJwAz2EkFwwvVyCe4lH/d5HmYRzNXg/m4PHlBHsHF9Q0caCTs86P7+EK+SnMDDPTjpxmFTtx0cYTilRByV9SMK"
    "j/TgUcPdTPTFAN+DeXev66y523qn3TDgMSWmRvGTZcPjz1a+/oCsD12pBix40veCLLlRFpf9OC+6ZllI4xOlECyR"
    "E8VJXAQvLqJ3qgyCbA1yLkurA/kBae5otobPq9scLFMhy0HBcBNY9BNY8gie8AhWEKzWoHzFfXjyTajU4HQ3XVWS"
    "qXdO3Nh+D/OSqzqwxqcYvl/j6Vfa9oaG6nuBlaWT4VK/7RIJ2Ze7P79O9JJrMNkMU/TJ9sq4rlnmemtDbyFZyh2I"
    "L7yWc0RA5Tz8QYIc3VfAJHO6L2DtAtLbpDdlafVQvP1lmQhZOtFwqfzrDClEdl8NY0wlOFWWBFlauRMBL1W2K9XV"
    "968/B6M3vnjjaOXjnbe3FhOfbRFFjZ25n6Yx5/QQRYuUIlGW5g+u6Nvdha13t3evE76/fvzkKiFIDeErU3wZWSod"
    "PgLXyldd7n+/WvkOEzLxIdxPUdxZWSrfUfrPhRmIlrPKN39OuvW2v5Y8pSUnSyJzCP6LldtdRMepY7/MD8//OLPQ"
    "1+H3Pn9gIVmOMO18tH52eP/NMll/ALhHdnTbxBPgNY28LOtmU5aW/m8EBCGfF0uCWMxnM0I2XxIKxYIgiEJJyOKN"
    "Qq5UEouFYt4dU39fufAMj3XwrsoIEevrDM7LiVuUh/4HhMHB+TdFAX+LMgMGbNhHcITNUD7OxJjBczPsJjiFJik3"
    "399040+/MDo4McYo9Itxhp5bYWiw+Wno7yGoGIYGe5eGkrc1NSvC0GCr0dAfQtBsGBrsDhr6MktDc2FosNzH6bPe"
    "hA7Ic7AIZylsLcns3x5VhWUX9oznYos+cDR0/zzq3f9J9mcS6377lPOevdd0gvUwo669Z/sfHJGFsQ=="
)


def content(packed):
    """A file's bytes."""
    return zlib.decompress(base64.b64decode(packed))
