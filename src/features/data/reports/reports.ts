/* What other slices and the processes use of this folder; its other files are its own. */

export { type Evaluation, openEvaluator } from './live.ts'
export { parseReport, unknownModel } from './report.ts'
