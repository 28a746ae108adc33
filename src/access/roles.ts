import type { AccessRules, Role } from './store.ts'

/** The administrator role is known by its name, which nobody can rename, create twice or delete. */
export const administratorRole = 'administrator'
export const publicRole = 'public'

/**
 * Whether a caller may give others a role, or take it from them: administrators any, others one of `canInviteRoleIds` of
 * their own role, and never `administrator`. Nobody has `public`. Decides over invitations and memberships alike.
 */
export function mayAssign({ admin, role: own }: { readonly admin: boolean; readonly role: Role }, role: Role): boolean {
  if (role.name === publicRole) return false
  return admin || (role.name !== administratorRole && invitable(own).includes(role.id))
}

/** The ids of all roles that a role may assign. */
export function assignableRoles({ roles }: AccessRules, own: Role | undefined, admin: boolean): ReadonlySet<string> {
  const given = own === undefined ? [] : [...roles.values()].filter((role) => mayAssign({ admin, role: own }, role))
  return new Set(given.map(({ id }) => id))
}

/** Stored JSON, so it may be anything. */
const invitable = ({ canInviteRoleIds }: Role): readonly string[] =>
  Array.isArray(canInviteRoleIds) ? canInviteRoleIds : []

/**
 * Whether a reader would take a role of this name for one of the built-in roles: case, width, accents, invisible
 * characters and letters of other scripts that look the same make no other name.
 */
export function readsLikeBuiltIn(name: string): boolean {
  return builtIn.has(asRead(name))
}

/** Of the letters in the built-in names, after decomposition and in lower case. `i` and `l` are not told apart. */
const lookAlikes = new Map(
  Object.entries({
    a: 'аɑα',
    b: 'ьƅβ',
    c: 'сϲ',
    d: 'ԁɗ',
    e: 'еєε',
    l: 'iіıιɩ1|ӏ',
    m: 'мɱ',
    n: 'ոпη',
    o: 'оοօσ0',
    p: 'рρ',
    r: 'гɾ',
    s: 'ѕꜱƽ5',
    t: 'тτ7',
    u: 'υսᴜц',
  }).flatMap(([letter, others]) => [...others].map((other) => [other, letter] as const)),
)

const builtIn = new Set([administratorRole, publicRole, 'user'].map(asRead))

function asRead(name: string): string {
  const plain = name
    .normalize('NFKD')
    .toLowerCase()
    .replace(/[\p{M}\p{Cf}\s\p{P}]/gu, '')
  return [...plain].map((letter) => lookAlikes.get(letter) ?? letter).join('')
}
