/** The second step of signing in, for pages that sign in otherwise than by `/auth`. */
export { checkEnabled } from './enrolment.ts'
export { type SecondFactorWrites, verifyTwoFactor } from './verify.ts'
