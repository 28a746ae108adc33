import { DaybookError, type Http } from './http.ts'
import { type OwnIds, ownOf, type Session, type SessionState, type SignedIn, type SignInResult } from './session.ts'

export type Registration = {
  readonly email: string
  readonly password: string
  readonly firstName: string
  readonly lastName: string
  readonly phone?: string
  /** Where the mailed link leads. */
  readonly link?: string
  readonly inviteToken?: string
  readonly tenant?: object
  readonly roleName?: string
}

/** A registration may have to be confirmed before anybody can sign in. */
export type Registered = Partial<SignedIn> & { readonly requiresEmailVerification?: boolean }

/** With the token of an invitation to the address of the account, signing in accepts the invitation. */
export type Invited = { readonly inviteToken?: string }

export type Credentials = Invited & { readonly email: string; readonly password: string; readonly tenant_Id?: string }

/** What is mailed: a code, or a link that leads to `link`, an address of a trusted frontend. */
export type Mailed =
  | { readonly mode: 'code'; readonly link?: string }
  | { readonly mode?: 'link'; readonly link: string }

export type Auth = {
  readonly state: SessionState
  /**
   * Called when somebody signs in or out, here or in another tab: with `signed in` once more where somebody else does, or the same
   * user at another tenant. Gives what ends it.
   */
  onChange(listener: (state: SessionState) => void): () => void
  register(registration: Registration): Promise<Registered>
  login(credentials: Credentials): Promise<SignInResult>
  verifySecondFactor(twoFactorToken: string, code: string): Promise<SignedIn>
  /** Has a link or a code mailed to sign in with. */
  sendMagicLink(email: string, how: Mailed): Promise<void>
  /** With the token of the link, or with the code and the address that it was sent to. */
  loginByMagicLink(tokenOrCode: string, email?: string, invited?: Invited): Promise<SignInResult>
  /** Asks the browser for a passkey. */
  loginByPasskey(invited?: Invited): Promise<SignInResult>
  /** Adds a passkey of this browser to the account. `proof`: a fresh password or code, where the session is by cookie. */
  addPasskey(name?: string, proof?: object): Promise<void>
  /** The address to send the browser to; it comes back to `callbackURL`, there call `completeSocialLogin`. */
  socialLogin(provider: string, callbackURL: string, invited?: Invited): Promise<string>
  /**
   * Takes the token that a social sign-in has brought back, out of the address of this page. A user whose role may not read users
   * is known by its ids alone.
   */
  completeSocialLogin(address?: string): Promise<SignedIn | OwnIds>
  forgotPassword(email: string, how: Mailed): Promise<void>
  resetPassword(tokenOrCode: string, password: string, email?: string): Promise<void>
  changePassword(currentPassword: string, newPassword: string): Promise<void>
  verifyEmail(token: string): Promise<void>
  /** `email` where nobody is signed in; the mailed link leads to `link`. */
  resendVerification(email: string | undefined, link: string): Promise<void>
  switchTenant(tenant_Id: string): Promise<void>
  me(): Promise<SignedIn>
  /** Ends the session at the server too; nobody is signed in afterwards, whatever it answers. */
  logout(): Promise<void>
}

export function openAuth(http: Http, session: Session): Auth {
  const { authMode } = session
  const post: Post = (path, body, isAnonymous = false) => http.ask(path, { method: 'POST', body, isAnonymous })
  const signIn: SignIn = async <Body extends object>(path: string, body: object) =>
    session.take(await post<Body>(path, { authMode, authType: 'web', ...body }, true))
  return {
    get state() {
      return session.state
    },
    onChange: (listener) => session.onChange(listener),
    ...signInsByText(http, session, post, signIn),
    ...passkeys(post, signIn),
    ...socialSignIns(http, session, post),
    ...ownAccount(http, session, post),
  }
}

type Post = <Body>(path: string, body: object, isAnonymous?: boolean) => Promise<Body>
type SignIn = <Body extends object>(path: string, body: object) => Promise<Body>

type Part<Name extends keyof Auth> = Pick<Auth, Name>

function signInsByText(
  http: Http,
  session: Session,
  post: Post,
  signIn: SignIn,
): Part<'register' | 'login' | 'verifySecondFactor' | 'sendMagicLink' | 'loginByMagicLink'> {
  const { authMode } = session
  return {
    register: (registration) => signIn<Registered>('/auth/register', registration),
    login: (credentials) => signIn<SignInResult>('/auth/login', credentials),
    async verifySecondFactor(twoFactorToken, code) {
      return session.take(await post<SignedIn>('/auth/2fa/verify', { authMode, twoFactorToken, code }, true))
    },
    async sendMagicLink(email, how) {
      await post('/auth/magiclink', { email, ...how }, true)
    },
    async loginByMagicLink(tokenOrCode, email, invited = {}) {
      const path = `/auth/magiclink/${encodeURIComponent(tokenOrCode)}`
      const query = { authMode, authType: 'web', email, ...invited }
      return session.take(await http.ask<SignInResult>(path, { query, isAnonymous: true }))
    },
  }
}

function passkeys(post: Post, signIn: SignIn): Part<'loginByPasskey' | 'addPasskey'> {
  return {
    async loginByPasskey(invited = {}) {
      type Begun = { options: PublicKeyCredentialRequestOptionsJSON; challengeId: string }
      const { options, challengeId } = await post<Begun>('/auth/passkey/authenticate/options', {}, true)
      const publicKey = PublicKeyCredential.parseRequestOptionsFromJSON(options)
      const response = credentialOf(await navigator.credentials.get({ publicKey }))
      return signIn<SignInResult>('/auth/passkey/authenticate/verify', { challengeId, response, ...invited })
    },
    async addPasskey(name, proof = {}) {
      const options = await post<PublicKeyCredentialCreationOptionsJSON>('/auth/passkey/register/options', proof)
      const publicKey = PublicKeyCredential.parseCreationOptionsFromJSON(options)
      const response = credentialOf(await navigator.credentials.create({ publicKey }))
      await post('/auth/passkey/register/verify', { response, ...(name !== undefined && { name }) })
    },
  }
}

function socialSignIns(http: Http, session: Session, post: Post): Part<'socialLogin' | 'completeSocialLogin'> {
  const { authMode } = session
  return {
    async socialLogin(provider, callbackURL, invited = {}) {
      const body = { authMode, provider, callbackURL, authType: 'web', ...invited }
      return (await post<{ url: string }>('/auth/social/signin', body, true)).url
    },
    async completeSocialLogin(address = location.href) {
      const brought = new URL(address).searchParams
      const error = brought.get('error')
      if (error !== null)
        throw new DaybookError(error, { status: 400, code: brought.get('error_code') ?? 'SOCIAL_SIGN_IN_FAILED' })
      const token = brought.get('token')
      if (token !== null) session.take({ token })
      return session.take(await ownOf(http))
    },
  }
}

function ownAccount(
  http: Http,
  session: Session,
  post: Post,
): Part<
  | 'forgotPassword'
  | 'resetPassword'
  | 'changePassword'
  | 'verifyEmail'
  | 'resendVerification'
  | 'switchTenant'
  | 'me'
  | 'logout'
> {
  const { authMode } = session
  return {
    async forgotPassword(email, how) {
      await post('/auth/password/reset', { email, ...how }, true)
    },
    async resetPassword(tokenOrCode, password, email) {
      await post(`/auth/password/reset/${encodeURIComponent(tokenOrCode)}`, { password, ...(email && { email }) }, true)
    },
    async changePassword(currentPassword, newPassword) {
      await post('/auth/password/change', { currentPassword, newPassword })
    },
    async verifyEmail(token) {
      await http.ask(`/auth/email/verify/${encodeURIComponent(token)}`, { isAnonymous: true })
    },
    async resendVerification(email, link) {
      await post('/auth/email/verify/resend', { ...(email && { email }), link }, email !== undefined)
    },
    async switchTenant(tenant_Id) {
      session.take(await post<object>('/auth/switch-tenant', { tenant_Id, authMode }))
    },
    me: () => http.ask<SignedIn>('/auth/me'),
    async logout() {
      try {
        await post('/auth/logout', {})
      } finally {
        session.forget()
      }
    },
  }
}

function credentialOf(credential: Credential | null): unknown {
  if (credential instanceof PublicKeyCredential) return credential.toJSON()
  throw new DaybookError('No passkey was chosen', { status: 0, code: 'NO_PASSKEY' })
}
