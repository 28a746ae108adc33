import { type Access, type Grant, withGrants } from '../../../query/access.ts'

export const notifications = 'svc_Notification'

/**
 * What a user may do with notifications by the endpoints of this slice: read the own ones,
 * whatever the role says of the collection. Administrators too read only their own here. What is behind relations is
 * theirs to read as always.
 */
export function ownNotifications(access: Access): Access {
  const grant: Access['grant'] = (collection, action) => {
    if (collection === notifications) return action === 'read' ? ownRows(access.userId) : undefined
    return access.admin ? everything : access.grant(collection, action)
  }
  return withGrants(access, grant, { admin: false })
}

/** As the role has it; a role without a permission for notifications reads the user's own. */
export function withOwnNotifications(access: Access): Access {
  if (access.admin || access.grant(notifications, 'read') !== undefined) return access
  const own = ownNotifications(access)
  return withGrants(access, (collection, action) =>
    collection === notifications ? own.grant(collection, action) : access.grant(collection, action),
  )
}

const everything: Grant = { fields: ['*'], conditions: null, relConditions: null, defaultValues: null }

/** Without a user there is nothing that could match: a condition on null is not written as one that means "any". */
function ownRows(userId: string | undefined): Grant | undefined {
  return userId === undefined ? undefined : { ...everything, conditions: { userId: { eq: userId } } }
}
