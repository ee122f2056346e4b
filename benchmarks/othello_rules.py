"""Othello in plain Python, square by square: what the device is measured and tested against."""

STEPS = [(r, c) for r in (-1, 0, 1) for c in (-1, 0, 1) if (r, c) != (0, 0)]


def start(size):
    """`board[r][c]`: 1 the player to move, -1 the other, 0 empty."""
    board = [[0] * size for _ in range(size)]
    m = size // 2
    board[m - 1][m] = board[m][m - 1] = 1
    board[m - 1][m - 1] = board[m][m] = -1
    return board


def flips(board, r, c):
    """The discs that a move would turn."""
    size, found = len(board), []
    if board[r][c]:
        return found
    for dr, dc in STEPS:
        line, y, x = [], r + dr, c + dc
        while 0 <= y < size and 0 <= x < size and board[y][x] == -1:
            line.append((y, x))
            y, x = y + dr, x + dc
        if 0 <= y < size and 0 <= x < size and board[y][x] == 1:
            found += line
    return found


def legal(board):
    """Squares on which the player to move may put a disc."""
    size = len(board)
    return {(r, c) for r in range(size) for c in range(size) if flips(board, r, c)}


def play(board, move):
    """The board after a move (None: a pass), from the other player's view."""
    turned = flips(board, *move) + [move] if move else []
    return [[-(1 if (r, c) in turned else v) for c, v in enumerate(row)]
            for r, row in enumerate(board)]  # fmt: skip


def types(board):
    """0 empty, 1 useless, 2 useful, square by square."""
    now, found = legal(board), []
    for r, row in enumerate(board):
        for c, v in enumerate(row):
            turned = [list(x) for x in board]
            turned[r][c] = -v
            found.append(0 if v == 0 else 1 if legal(turned) == now else 2)
    return found
