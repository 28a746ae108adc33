import { appUrl, boolean, count, list, matching, oneOf, origin, seconds, text, urlPath } from '../parsers.ts'
import { group, optional, optionalSecret, secret, variable } from '../variable.ts'

/* Sign-in: its ways, its limits and its origins. */

/** The 35 social sign-in providers, as they are written in AUTH_SERVICES_ENABLED. */
export const socialProviderIds = [
  ...['GOOGLE', 'FACEBOOK', 'APPLE', 'GITHUB', 'ATLASSIAN', 'COGNITO', 'DISCORD', 'DROPBOX', 'FIGMA', 'GITLAB'],
  ...['HUGGINGFACE', 'KAKAO', 'KICK', 'LINE', 'LINEAR', 'LINKEDIN', 'MICROSOFT', 'NAVER', 'NOTION', 'PAYBIN'],
  ...['PAYPAL', 'POLAR', 'RAILWAY', 'REDDIT', 'ROBLOX', 'SALESFORCE', 'SLACK', 'SPOTIFY', 'TIKTOK', 'TWITCH'],
  ...['TWITTER', 'VERCEL', 'VK', 'WECHAT', 'ZOOM'],
] as const

/** Ten years: an access token can't be given a longer life. */
export const longestLifeSeconds = 315_360_000

const services = oneOf('LOCAL', 'PASSKEY', 'TWOFACTOR', ...socialProviderIds)
const inProductionOnly = { production: 'true', otherwise: 'false' }

export const auth = group('Accounts and sessions', {
  secretKey: secret(
    variable(
      'SECRET_KEY',
      text,
      '',
      'Key that signs tokens; npm start makes one up, otherwise required; at least 32 characters in production',
    ),
  ),
  secretKeyPrevious: optionalSecret(
    'SECRET_KEY_PREVIOUS',
    text,
    'The key before the last rotation: its tokens are still accepted and what it encrypted is still read, new ones use SECRET_KEY',
  ),
  accessTokenExpiresIn: variable(
    'ACCESS_TOKEN_EXPIRES_IN',
    seconds(1, longestLifeSeconds),
    '604800',
    'Life of access tokens and sessions',
  ),
  servicesEnabled: variable('AUTH_SERVICES_ENABLED', list(services), 'LOCAL', 'Enabled ways to sign in'),
  appUrls: variable(
    'AUTH_APP_URL',
    list(appUrl),
    '',
    'Trusted frontends: links in mails, CORS and OAuth return addresses are checked against them',
  ),
  publicRegistration: variable(
    'PUBLIC_REGISTRATION',
    boolean,
    'true',
    'Anyone may register; otherwise only with an invitation',
  ),
  defaultRoleRegistered: variable('DEFAULT_ROLE_REGISTERED', text, 'user', 'Role of self-registered users'),
  allowedRolesMultiTenant: variable(
    'ALLOWED_ROLES_MULTI_TENANT',
    list(text),
    '',
    'Roles that a registration in multi-tenant mode may ask for',
  ),
  requireEmailVerification: variable(
    'REQUIRE_EMAIL_VERIFICATION',
    boolean,
    'false',
    'Registration gives no session, and login is refused, until the e-mail address is verified; needs a mail sender',
  ),
  emailVerificationResendCooldown: variable(
    'EMAIL_VERIFICATION_RESEND_COOLDOWN',
    seconds(0),
    '60',
    'Shortest time between two verification mails to one address, and between two requests of an account for another address; 0 disables the check',
  ),
  sendWelcomeEmail: variable('SEND_WELCOME_EMAIL', boolean, 'false', 'Send the welcome template after a registration'),
  welcomeEmailSubject: optional('WELCOME_EMAIL_SUBJECT', text, 'Subject of the welcome mail instead of its template’s'),
  genericResponses: variable(
    'AUTH_GENERIC_RESPONSES',
    boolean,
    'false',
    'Answer alike whether or not an account exists, where registration, magic link and change of the address would tell; a registration then drops a phone number of another account, which is otherwise 400 `PHONE_TAKEN`',
  ),
  passwordHashCost: variable(
    'PASSWORD_HASH_COST',
    count(4, 16),
    { test: '4', otherwise: '10' },
    'Cost of bcrypt for passwords that are set from now on; one more doubles the time of a login. At least 10 in production',
  ),
  disableSessionCleanup: variable(
    'DISABLE_SESSION_CLEANUP',
    boolean,
    'false',
    'Do not delete expired sessions periodically',
  ),
})

export const cookie = group('Session cookie', {
  domain: optional(
    'AUTH_COOKIE_DOMAIN',
    matching(/^\.?[a-z0-9-]+(\.[a-z0-9-]+)*$/i, 'domain name'),
    'Domain of the session cookie',
  ),
  sameSite: variable(
    'AUTH_COOKIE_SAME_SITE',
    oneOf('strict', 'lax', 'none'),
    { production: 'strict', otherwise: 'lax' },
    'SameSite attribute of the session cookie',
  ),
  httpOnly: variable('AUTH_COOKIE_HTTP_ONLY', boolean, 'true', 'Keep the session cookie from scripts'),
  secure: variable('AUTH_COOKIE_SECURE', boolean, inProductionOnly, 'Send the session cookie over HTTPS only'),
  path: variable('AUTH_COOKIE_PATH', urlPath, '/', 'Path of the session cookie'),
})

export const passkey = group('Passkeys', {
  rpId: optional(
    'PASSKEY_RP_ID',
    matching(/^[a-z0-9-]+(\.[a-z0-9-]+)*$/i, 'domain name'),
    'Relying party id. Passkeys need all three variables of this section',
  ),
  rpName: optional('PASSKEY_RP_NAME', text, 'Relying party name'),
  origins: variable('PASSKEY_ORIGIN', list(origin), '', 'Origins that may use passkeys'),
})

export const oauthServer = group('OAuth server', {
  enabled: variable(
    'OAUTH_SERVER_ENABLED',
    boolean,
    'true',
    'Let users give programs access to their account (docs/oauth.md). Needs BASE_URL, https in production',
  ),
  registration: variable(
    'OAUTH_REGISTRATION_ENABLED',
    boolean,
    'true',
    'Programs may register themselves; without, only those with a metadata document of their own (an https address as client_id)',
  ),
  accessTokenExpiresIn: variable(
    'OAUTH_ACCESS_TOKEN_EXPIRES_IN',
    seconds(60, 86_400),
    '900',
    'Life of the access tokens of programs',
  ),
  refreshTokenExpiresIn: variable(
    'OAUTH_REFRESH_TOKEN_EXPIRES_IN',
    seconds(3600, 31_536_000),
    '2592000',
    'How long a program may do nothing until its user is asked again',
  ),
})

export const oauth = group('Social sign-in', {
  allowUnverifiedLink: variable(
    'OAUTH_ALLOW_UNVERIFIED_LINK',
    boolean,
    'false',
    'Link a social login to the account of the same e-mail address even if the provider has not verified it',
  ),
  allowDirectIdToken: variable(
    'OAUTH_ALLOW_DIRECT_IDTOKEN',
    boolean,
    'false',
    'Allow POST /auth/social/signin with an idToken',
  ),
  stateCookieBinding: variable(
    'OAUTH_STATE_COOKIE_BINDING',
    boolean,
    'false',
    'Bind the OAuth state to the browser with an HTTP-only cookie',
  ),
})

export const cors = group('CORS', {
  allowedOrigins: variable(
    'AUTH_CORS_ALLOWED_ORIGINS',
    list(origin),
    '',
    'Further origins that may call the API from a browser, beside AUTH_APP_URL',
  ),
  allowAnyPort: variable('AUTH_CORS_ALLOW_ANY_PORT', boolean, 'true', 'Any port of an allowed host and scheme matches'),
  credentials: variable('AUTH_CORS_CREDENTIALS', boolean, 'true', 'Let browsers send cookies along'),
})
