/**
 * Roles, what they may do, and who somebody is. Everything that other slices use of this one; `explain.ts` and
 * `transfer.ts` are for its own routes, because they build on slices that build on this.
 */

export { checkRuleCells, checkRuleDelete } from './check.ts'

export { type Review, reviewPermissions } from './review.ts'
