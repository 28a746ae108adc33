/**
 * Roles, what they may do, and who somebody is. Everything that other slices use of this one; `explain.ts` and
 * `transfer.ts` are for its own routes, because they build on slices that build on this.
 */
export { collectionsWithRowRules, relatedPathsOf, type Variable, variablesIn } from './access.ts'
export { checkRuleCells, checkRuleDelete } from './check.ts'
export {
  accessOfPrincipal,
  accessOfRole,
  type Caller,
  identified,
  ownRowSql,
  type Principal,
  type PrincipalRow,
  principalOf,
  principalSql,
  signedIn,
} from './principal.ts'
export { type Review, reviewPermissions } from './review.ts'
export { administratorRole, assignableRoles, mayAssign, publicRole, readsLikeBuiltIn } from './roles.ts'
export {
  type AccessRules,
  type AccessStore,
  type CurrentAccess,
  openAccessStore,
  type Role,
  readRules,
} from './store.ts'
