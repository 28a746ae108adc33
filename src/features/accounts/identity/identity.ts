/* What other slices and the processes use of this folder; its other files are its own. */

export { checkIdentity } from './rules.ts'
