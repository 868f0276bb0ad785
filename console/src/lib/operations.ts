// The pages about how the service is operated: navigation and search show those that this server has methods for.

import { serves } from "../api/client";

export interface OperationsPage {
  title: string;
  to: string;
  method: string;
}

export const OPERATIONS: readonly OperationsPage[] = [
  { title: "Objectives", to: "/objectives", method: "Admin.ListSlos" },
  { title: "Alerts", to: "/alerts", method: "Admin.ListAlerts" },
  { title: "History", to: "/history", method: "Admin.QueryHistory" },
  { title: "Probers", to: "/probers", method: "Admin.ListProbers" },
  { title: "Rollouts", to: "/rollouts", method: "Admin.GetRollout" },
];

export const operationsHere = (): OperationsPage[] => OPERATIONS.filter((one) => serves(one.method));
