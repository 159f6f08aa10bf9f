/**
 * The format of what a run carries in its snapshot. Two numbers go with it, from the first release
 * on: the format that wrote it, and the lowest one that may move the run.
 */

/**
 * The format that this version of the package writes. It grows with each member that the envelope
 * gets. Older versions carry such members along, though they do not understand them.
 */
export const FORMAT = 2;

/**
 * The lowest format that may move a run saved by this version. It grows only where an older version
 * would do harm, because it leaves a new member as it is. Such a version refuses the run.
 */
export const MOVES = 2;

/** The oldest format that this version reads. It refuses runs of older ones. */
export const OLDEST = 2;
