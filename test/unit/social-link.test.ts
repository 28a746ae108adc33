import { expect, it } from 'vitest'
import { decideLink } from '../../src/features/accounts/social/social.ts'

const account = (email: string | null) => ({
  id: 'u1',
  email,
  firstName: 'Ada',
  lastName: null,
  status: 'active',
  emailVerified: true,
  password: null,
})
const nobody = { linked: undefined, ofAddress: undefined }
const ada = account('ada@example.com')
const verified = { email: 'ada@example.com', emailVerified: true }
const unverified = { ...verified, emailVerified: false }
const strict = { allowUnverifiedLink: false, registers: true }

it('opens the linked account, and proves its address only where both have the same one', () => {
  expect(decideLink({ ...nobody, linked: ada }, verified, strict)).toEqual({ account: ada, isProof: true })
  expect(decideLink({ ...nobody, linked: ada }, unverified, strict)).toEqual({ account: ada, isProof: false })
  const moved = account('ada@example.org')
  expect(decideLink({ ...nobody, linked: moved }, verified, strict)).toEqual({ account: moved, isProof: false })
  const without = account(null)
  expect(decideLink({ ...nobody, linked: without }, verified, strict)).toEqual({ account: without, isProof: false })
})

it('opens the account of a verified address', () => {
  expect(decideLink({ ...nobody, ofAddress: ada }, verified, strict)).toEqual({ account: ada, isProof: true })
})

it('refuses an unverified address of an account unless that is allowed, and proves nothing by it', () => {
  expect(() => decideLink({ ...nobody, ofAddress: ada }, unverified, strict)).toThrow(
    expect.objectContaining({ status: 403, code: 'ACCOUNT_NOT_LINKED' }),
  )
  const lax = { ...strict, allowUnverifiedLink: true }
  expect(decideLink({ ...nobody, ofAddress: ada }, unverified, lax)).toEqual({ account: ada, isProof: false })
})

it('creates an account where registration is open, and opens known ones where it is closed', () => {
  expect(decideLink(nobody, unverified, strict)).toEqual({ account: undefined, isProof: false })
  const closed = { ...strict, registers: false }
  expect(() => decideLink(nobody, verified, closed)).toThrow(
    expect.objectContaining({ status: 403, code: 'REGISTRATION_DISABLED' }),
  )
  expect(decideLink({ ...nobody, linked: ada }, verified, closed).account).toBe(ada)
})
