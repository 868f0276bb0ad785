// The pages of the server, as the navigation at the side and the search show them: one line each.

import { serves } from "./api/client";

export interface ServerPage {
  title: () => string;
  to: string;
  /** Whether this server has what the page shows. */
  shown: () => boolean;
}

const always = (): boolean => true;

export const SERVER_PAGES: ServerPage[] = [
  { title: () => (serves("Admin.ListMembers") ? "Cluster and disks" : "Disks"), to: "/cluster", shown: always },
  { title: () => "Drains", to: "/drains", shown: () => serves("Admin.ListDrains") },
  { title: () => "At risk", to: "/at-risk", shown: () => serves("Admin.GetAtRisk") },
  { title: () => "Federation", to: "/federation", shown: always },
  { title: () => "Tenants", to: "/tenants", shown: () => serves("Admin.ListTenants") },
  { title: () => "Audit log", to: "/audit", shown: always },
];
