/**
 * Accounts, sessions and the ways to sign in: the face of this slice for other slices and the API. Only `routes.ts`
 * uses the functions behind requests under `/auth`.
 */

export {
  bearerOf,
  callerOfPassword,
  callerOfToken,
  isHeaderAttempt,
  passwordInHeaders,
  publicCaller,
  resolveCaller,
} from './authenticate.ts'
export {
  cookieNamesOf,
  deliver,
  deliveryTo,
  dropSessionCookie,
  isTrustedOrigin,
  personBody,
  prepare,
  refuseForeignPage,
  roleAndPermissions,
  setSessionCookie,
  signInMode,
  tenantBody,
  tokenOfCookies,
} from './browser.ts'
export { type AuthWrites, afterwards } from './capabilities.ts'
export { signInRefusal } from './decisions.ts'
export { endAccess, holdsProof, type ProvenAccount, proveOwnership, requireFreshProof } from './ownership.ts'
export {
  type Account,
  accountOf,
  findAccount,
  lockAccount,
  type Membership,
  membershipsOf,
  type Person,
} from './queries.ts'
export { checkRegisteredRole, registeredRole } from './register.ts'
export { openSessionStore, type Sessions, type SessionType } from './session-store.ts'
export { deleteOldSessions, endSession, moveSession } from './sessions.ts'
export {
  type AuthMode,
  authRoute,
  authRoutes,
  checkNewPassword,
  defaultLink,
  emailOf,
  Link,
  Proof,
  ProofBody,
  type ProofInput,
  SignedInShape,
  SignIn,
  TokenParams,
  trustedLink,
  trustedReturn,
} from './shapes.ts'
export {
  checkMaySignIn,
  type FirstFactor,
  login,
  membershipOf,
  type PendingSignIn,
  requestMagicLink,
  type SignInAnswer,
  signIn,
  signInAtOnce,
  signInByMagicLink,
  signingIn,
} from './sign-in.ts'
