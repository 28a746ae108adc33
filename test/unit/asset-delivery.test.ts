import { describe, expect, it } from 'vitest'
import { isExecutable } from '../../src/adapters/file-type.ts'
import { parseConfig } from '../../src/config/config.ts'
import { assetAccess, secureProxyRefusal } from '../../src/features/files/assets/assets.ts'
import { attachment, deliveryHeaders } from '../../src/features/files/assets/delivery.ts'

const config = (env = {}) => parseConfig({ SECRET_KEY: 'x'.repeat(40), ...env })
const file = { type: 'image/png', isTypeProven: true, name: 'a.png' }

describe('types that may run', () => {
  it.each([
    ...[
      'text/html',
      'TEXT/HTML; charset=utf-8',
      'application/xhtml+xml',
      'image/svg+xml',
      'text/xml',
      'application/xml',
    ],
    ...['text/javascript', 'application/javascript', 'application/x-javascript', 'text/ecmascript', 'text/jscript'],
    ...['application/rss+xml', 'text/javascript1.5', 'text/x-ecmascript', 'text/x-server-parsed-html'],
    ...['application/x-shockwave-flash', 'application/xml-dtd', 'text/vbscript', 'message/rfc822'],
  ])('%s', (type) => expect(isExecutable(type)).toBe(true))

  it.each([
    ...['image/png', 'text/plain', 'application/pdf', 'application/json', 'video/mp4', 'text/csv'],
    'application/vnd.openxmlformats-officedocument.wordprocessingml.document',
  ])('not %s', (type) => expect(isExecutable(type)).toBe(false))
})

describe('delivery', () => {
  it('shows what its content proves to be harmless, in a sandbox', () =>
    expect(deliveryHeaders(file, config(), false)).toEqual({
      'content-type': 'image/png',
      'content-disposition': 'inline',
      'x-content-type-options': 'nosniff',
      'content-security-policy': "default-src 'none'; style-src 'unsafe-inline'; sandbox",
      'referrer-policy': 'no-referrer',
    }))

  it('lets browsers view documents, sound and film, which no sandbox can', () => {
    for (const type of ['application/pdf', 'video/mp4', 'audio/mpeg'])
      expect(deliveryHeaders({ ...file, type }, config(), false)['content-security-policy']).not.toContain('sandbox')
  })

  it('saves what may run, as bytes', () =>
    expect(deliveryHeaders({ ...file, type: 'image/svg+xml', name: 'a.svg' }, config(), false)).toMatchObject({
      'content-type': 'application/octet-stream',
      'content-disposition': `attachment; filename="a.svg"; filename*=UTF-8''a.svg`,
      'x-content-type-options': 'nosniff',
      'content-security-policy': expect.stringContaining('sandbox'),
    }))

  it('saves what nothing proves, and says that it is not to be guessed at, whatever ASSET_NOSNIFF says', () =>
    expect(deliveryHeaders({ ...file, isTypeProven: false }, config({ ASSET_NOSNIFF: 'false' }), false)).toMatchObject({
      'content-type': 'image/png',
      'content-disposition': expect.stringMatching(/^attachment/),
      'x-content-type-options': 'nosniff',
      'content-security-policy': expect.stringContaining('sandbox'),
    }))

  it('shows plain text, which nothing can prove, as text', () =>
    expect(
      deliveryHeaders({ ...file, type: 'text/plain', isTypeProven: false }, config({ ASSET_NOSNIFF: 'false' }), false),
    ).toMatchObject({
      'content-type': 'text/plain',
      'content-disposition': 'inline',
      'x-content-type-options': 'nosniff',
      'content-security-policy': expect.stringContaining('sandbox'),
    }))

  it('obeys ASSET_XSS_PROTECTION and ASSET_NOSNIFF, but scripts stay off', () => {
    const off = config({ ASSET_XSS_PROTECTION: 'false', ASSET_NOSNIFF: 'false' })
    const headers = deliveryHeaders({ ...file, type: 'text/html' }, off, false)
    expect(headers).toMatchObject({ 'content-type': 'text/html', 'content-disposition': 'inline' })
    expect(headers['content-security-policy']).toContain('sandbox')
    expect(headers).not.toHaveProperty('x-content-type-options')
  })

  it('saves what is to be saved', () =>
    expect(deliveryHeaders(file, config(), true)['content-disposition']).toMatch(/^attachment; filename="a.png"/))
})

describe('names of downloads', () => {
  it.each([
    ['plain.txt', 'plain.txt', 'plain.txt'],
    ['Größe.pdf', 'Gr__e.pdf', 'Gr%C3%B6%C3%9Fe.pdf'],
    ['a "quoted" \\ name.txt', 'a _quoted_ _ name.txt', 'a%20%22quoted%22%20%5C%20name.txt'],
    ["it's (1)*.txt", "it's (1)*.txt", 'it%27s%20%281%29%2A.txt'],
    ['line\r\nset-cookie: x=1.txt', 'lineset-cookie: x=1.txt', 'lineset-cookie%3A%20x%3D1.txt'],
    ['../../etc/passwd', '.._.._etc_passwd', '..%2F..%2Fetc%2Fpasswd'],
    ['100%.txt', '100_.txt', '100%25.txt'],
    ['gnp.\u202eexe', 'gnp.exe', 'gnp.exe'],
    ['\ud800.txt', '_.txt', '%EF%BF%BD.txt'],
    ['', 'download', 'download'],
  ])('%j', (name, plain, extended) =>
    expect(attachment(name)).toBe(`attachment; filename="${plain}"; filename*=UTF-8''${extended}`),
  )
})

describe('access', () => {
  const tenant = '0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44'
  const shared = (mode: string) =>
    config({ SHARED_ASSET_ACCESS_MODE: mode, SHARED_ASSET_TENANT_IDS: tenant.toUpperCase() })
  const nobody = { userId: undefined }
  const somebody = { userId: 'u' }

  it.each([
    ['public files', { isPublic: true, tenantId: null }, nobody, config(), 'anyone'],
    ['private files', { isPublic: false, tenantId: null }, somebody, config(), 'permission'],
    ['files of a shared tenant', { isPublic: false, tenantId: tenant }, nobody, shared('public'), 'anyone'],
    ['for users, to one', { isPublic: false, tenantId: tenant }, somebody, shared('authenticated'), 'caller'],
    ['for users, to nobody', { isPublic: false, tenantId: tenant }, nobody, shared('authenticated'), 'permission'],
    ['with sharing off', { isPublic: false, tenantId: tenant }, somebody, shared('off'), 'permission'],
    ['of a tenant that is not listed', { isPublic: false, tenantId: 'other' }, nobody, shared('public'), 'permission'],
    ['of no tenant', { isPublic: false, tenantId: null }, nobody, shared('public'), 'permission'],
  ] as const)('%s', (_name, owner, caller, settings, expected) =>
    expect(assetAccess(owner, caller, settings)).toBe(expected),
  )

  it('asks more for the types of ASSET_SECURE_PROXY_URLS, while the proxy is on', () => {
    const on = config({ ASSET_PROXY_ENABLED: 'true', ASSET_SECURE_PROXY_URLS: 'video,image/png' })
    const off = config({ ASSET_SECURE_PROXY_URLS: 'video,image/png' })
    expect(secureProxyRefusal('video/mp4', nobody, 'u', on)).toEqual({
      status: 401,
      message: 'Authentication required',
    })
    const missing = { status: 403, message: 'Invalid or missing authentication header' }
    expect(secureProxyRefusal('video/mp4', somebody, undefined, on)).toEqual(missing)
    expect(secureProxyRefusal('image/png', somebody, 'somebody else', on)).toEqual(missing)
    expect(secureProxyRefusal('video/mp4', somebody, 'u', on)).toBeUndefined()
    expect(secureProxyRefusal('image/jpeg', nobody, undefined, on)).toBeUndefined()
    expect(secureProxyRefusal('video/mp4', nobody, undefined, off)).toBeUndefined()
  })
})
