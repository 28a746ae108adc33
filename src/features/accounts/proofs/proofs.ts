/**
 * Passkeys, second factors and API keys as proofs of who somebody is: signing in asks for them, and the routes of each
 * build on signing in.
 */

export { findApiKey, hintOf, newApiKey, readsLikeApiKey } from './api-keys.ts'
export {
  type ChallengeResponse,
  challengeKey,
  checkPasskey,
  credentialIdsOf,
  deletePasskey,
  enabledPasskeys,
  insertPasskey,
  noteUse,
  type PasskeyProof,
  type PasskeyWrites,
  passkeysOf,
  refusedPasskey,
  type StoredCredential,
  usePasskey,
} from './passkeys.ts'
export {
  acceptCode,
  backupCodeHashes,
  beginEnrolment,
  challengeIdentifier,
  challengeSecondFactor,
  deleteEnrolment,
  findChallenge,
  finishEnrolment,
  hasSecondFactor,
  lockEnrolment,
  newBackupCodes,
  passwordMark,
  secretOf,
  wrongCode,
} from './second-factor.ts'
