/**
 * Whether a glob of one segment, in which a star stands for any text, covers a segment. What is
 * between the stars is placed from left to right, each as early as it can be, to leave the most for
 * the rest: no backtracking, whoever chose the texts.
 */
export function starsCover(glob: string, segment: string): boolean {
  const [head = '', ...pieces] = glob.split('*');
  const tail = pieces.pop();
  if (tail === undefined) return glob === segment;
  const end = segment.length - tail.length;
  if (end < head.length || !segment.startsWith(head) || !segment.endsWith(tail)) return false;
  let from = head.length;
  for (const piece of pieces) {
    const at = segment.indexOf(piece, from);
    if (at === -1 || at + piece.length > end) return false;
    from = at + piece.length;
  }
  return true;
}
