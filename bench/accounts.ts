import type { Case } from './cases.ts'
import { password } from './daybook.ts'

type SignedIn = { user: { id: string; email: string }; role: { name: string } }
type Me = { user: Record<string, unknown> }

/** Sign in, and who am I. */
export const accountCases: readonly Case[] = [
  {
    id: 'W8',
    title: 'login',
    roles: ['limited'],
    connections: 4,
    status: 200,
    request: ({ as }) => ({ method: 'POST', path: '/auth/login', body: JSON.stringify({ email: as.email, password }) }),
    accepts: (body) => body.includes('"token":"'),
    comparable: ({ user, role }: SignedIn) => ({ id: user.id, email: user.email, role: role.name }),
  },
  {
    id: 'W9',
    title: 'me',
    roles: ['admin', 'limited'],
    connections: 16,
    status: 200,
    request: () => ({ method: 'GET', path: '/auth/me' }),
    accepts: (body) => body.startsWith('{"user"'),
    // Daybook notes in the row, now and then, that the user was here.
    comparable: ({ user, ...rest }: Me) => ({ user: { ...user, lastAccess: null }, ...rest }),
  },
]
