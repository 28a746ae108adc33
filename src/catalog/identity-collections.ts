/**
 * THE list of identity collections: what lets somebody in, or will. Their rows are made by signing in, registering and
 * inviting, and by nothing else: the generic routes never write them, but for what `writersOf` lets end, and a
 * permission for another collection never shows them through a relation.
 */
export const identityCollections: ReadonlySet<string> = new Set([
  'svc_Account',
  'svc_Sessions',
  'svc_Verification',
  'svc_TwoFactor',
  'svc_Passkey',
  'svc_ApiKey',
  'svc_Invite',
])
